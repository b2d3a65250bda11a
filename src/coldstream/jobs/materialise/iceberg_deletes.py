"""Rows that others have deleted without writing files anew: Iceberg's position deletes.

Athena and Spark (`merge-on-read`) write which positions of a file are gone, and leave the file as
it is. Whoever writes its rows anew must leave these out, or they are there again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

Positions = npt.NDArray[np.int64]
NONE_DELETED: Positions = np.empty(0, np.int64)


def deleted_positions(table: Table) -> Mapping[str, Positions]:
    """By file, the positions of its deleted rows, rising; files that have none are left out.

    Args:
        table: as it was loaded.

    Raises:
        ValueError: there are deletes by equality, which pyiceberg cannot apply.
    """
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return {}
    if all(each.content is ManifestContent.DATA for each in snapshot.manifests(table.io)):
        return {}
    tasks = [task for task in table.scan().plan_files() if task.delete_files]
    found = _read_all_delete_files(table.io, tasks)
    return {
        path: np.unique(np.concatenate([each.to_numpy() for each in arrays]).astype(np.int64))
        for path, arrays in found.items()
    }
