"""A person sets a table back in the very moment after a commit, before the run looks again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from coldstream.errors import ConflictError, UnknownOutcomeError
from coldstream.jobs.materialise.commit import commit
from coldstream.jobs.materialise.table import Append, AppendOutcome, Loaded
from coldstream_devkit.suites.table import SCHEMA, append_of, offsets
from tests.unit.jobs.test_iceberg import catalog, site_of

__all__ = ["catalog"]
NAME = "db.t"


@pytest.mark.parametrize("answered", [True, False])
def test_a_commit_that_was_undone_at_once_is_a_conflict_and_no_hole(
    tmp_path: Path, catalog: Callable[[], SqlCatalog], answered: bool
) -> None:
    """It counted as landed, and the next one was put on top."""
    site = site_of(tmp_path, catalog, shared=False)
    table: Any = site.open(NAME)

    def put(first: int, next_offset: int) -> None:
        change = append_of(site, table.load(SCHEMA), first, next_offset)
        commit(table, change, first_schema=SCHEMA, pause=lambda _: None)

    put(0, 10)
    inner = table.append

    def append(loaded: Loaded, change: Append) -> AppendOutcome:
        outcome: AppendOutcome = inner(loaded, change)
        table.append = inner
        made: Any = catalog().load_table(NAME)
        made.manage_snapshots().rollback_to_snapshot(
            made.metadata.snapshots[0].snapshot_id
        ).commit()
        if not answered:
            raise UnknownOutcomeError("no answer")
        return outcome

    table.append = append
    with pytest.raises(ConflictError, match="was set back"):
        put(10, 20)

    assert offsets(site, NAME) == list(range(10))
