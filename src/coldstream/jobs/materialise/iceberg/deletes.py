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
from pyiceberg.table import FileScanTask, Table

Positions = npt.NDArray[np.int64]
NONE_DELETED: Positions = np.empty(0, np.int64)


def partly_deleted(table: Table) -> Mapping[str, FileScanTask]:
    """By path, the files with such deletes.

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
    return {task.file.file_path: task for task in tasks}


def deleted_positions(table: Table, task: FileScanTask | None) -> Positions:
    """The positions of a file's deleted rows, rising.

    Args:
        table: as it was loaded.
        task: as `partly_deleted` gives it; None for a file without deletes.
    """
    if task is None:
        return NONE_DELETED
    arrays = _read_all_delete_files(table.io, [task]).get(task.file.file_path, ())
    return np.unique(np.concatenate([NONE_DELETED, *(each.to_numpy() for each in arrays)]))
