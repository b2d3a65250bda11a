"""What keeps a table quick to read and as long as it should be: compaction and retention.

Both are one `Append` that takes files away, so both hold only if the table is as it was when they
were planned; a materialise that lands meanwhile wins, and they are planned again next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from coldstream.errors import InternalError, UnknownOutcomeError
from coldstream.jobs.materialise.table import (
    Append,
    AppendOutcome,
    Loaded,
    StoredFile,
    Table,
    WrittenFile,
)
from coldstream.jobs.materialise.write import TableWriter


def plan_compaction(files: Sequence[StoredFile], target_bytes: int) -> list[tuple[StoredFile, ...]]:
    """Which files become one: neighbours of one stream and one unit of time, in offset order.

    A file of more than half the target is left alone: rewriting it would save little. So is one of
    which others have deleted rows: their own compaction knows which.

    Args:
        files: of the table.
        target_bytes: what a file should have.
    """
    groups: list[tuple[StoredFile, ...]] = []
    for _, members in groupby(sorted(files, key=lambda f: (*_place(f), f.first_offset)), _place):
        together: list[StoredFile] = []
        for file in members:
            if file.size > target_bytes // 2 or file.partly:
                continue
            if together and sum(each.size for each in together) + file.size > target_bytes:
                groups.append(tuple(together))
                together = []
            together.append(file)
        groups.append(tuple(together))
    return [group for group in groups if len(group) > 1]


def plan_retention(
    files: Sequence[StoredFile], keep_seconds: int, now_ms: int
) -> tuple[StoredFile, ...]:
    """Files all of whose rows are older than `keep_seconds`; only whole files go.

    Args:
        files: of the table.
        keep_seconds: as in a rule.
        now_ms: ms since the Unix epoch.
    """
    oldest = now_ms - keep_seconds * 1000
    return tuple(file for file in files if file.last_ms is not None and file.last_ms < oldest)


def _place(file: StoredFile) -> tuple[str, int]:
    return file.stream, -1 if file.time_unit is None else file.time_unit


@dataclass(frozen=True, slots=True)
class Kept:
    """What maintenance did to a table.

    Attributes:
        merged: files that became fewer, and `into` how many.
        into: new files.
        expired: files whose rows were older than the rule keeps.
        expired_rows: rows in them.
    """

    merged: int = 0
    into: int = 0
    expired: int = 0
    expired_rows: int = 0


def merge(
    table: Table, loaded: Loaded, group: Sequence[StoredFile], writer: TableWriter
) -> list[WrittenFile]:
    """Write the rows of several files anew, as few files; nothing is committed yet.

    Raises:
        InternalError: other rows came out than went in; nothing may be committed.
    """
    written: list[WrittenFile] = []
    with writer:
        for file in group:
            for batch in table.rows(loaded, file.path):
                written += writer.write(batch)
        written += writer.close()
    before, after = sum(each.rows for each in group), sum(each.rows for each in written)
    if before != after:
        raise InternalError(
            f"{before} rows became {after} when files were merged", stream=group[0].stream
        )
    return written


def swap(
    table: Table, loaded: Loaded, old: Sequence[StoredFile], new: Sequence[WrittenFile], id_: str
) -> bool:
    """Put new files in the place of old ones, or nothing; False if others changed the table.

    Raises:
        UnknownOutcomeError: nobody knows; it is planned again next time, from what is there.
    """
    append = Append(id_, new, removes=[each.path for each in old])
    try:
        return table.append(loaded, append) is AppendOutcome.LANDED
    except UnknownOutcomeError:
        if id_ not in table.load(loaded.schema).appended:
            raise
    return True


def maintain(
    table: Table,
    *,
    first_schema: pa.Schema,
    keep_seconds: int | None,
    now_ms: int,
    target_bytes: int,
    new_id: Callable[[], str],
    writer: Callable[[Loaded, str], TableWriter],
    compact: bool = True,
    dry_run: bool = False,
) -> Kept:
    """Remove what is too old, then merge small files, one commit for each group of them.

    One process does it, on the driver: a day's small files of a table are few; a table that was
    never compacted takes as long as copying it.

    Args:
        table: to maintain.
        first_schema: see `Table.load`.
        keep_seconds: as in a rule.
        now_ms: ms since the Unix epoch.
        target_bytes: what a file should have.
        new_id: gives an id that is used once.
        writer: makes a writer of files for a stream.
        compact: merge small files, too.
        dry_run: only say what would be done.
    """
    loaded = table.load(first_schema)
    files = table.files(loaded)
    old = () if keep_seconds is None else plan_retention(files, keep_seconds, now_ms)
    gone = {file.path for file in old}
    small = [file for file in files if compact and file.path not in gone]
    groups = plan_compaction(small, target_bytes)
    kept = Kept(expired=len(old), expired_rows=sum(file.rows for file in old))
    if dry_run:
        return replace(kept, merged=sum(len(g) for g in groups), into=len(groups))
    if old and not swap(table, loaded, old, (), new_id()):
        return Kept()
    for group in groups:
        loaded = table.load(first_schema)
        new = merge(table, loaded, group, writer(loaded, group[0].stream))
        if swap(table, loaded, group, new, new_id()):
            kept = replace(kept, merged=kept.merged + len(group), into=kept.into + len(new))
    return kept
