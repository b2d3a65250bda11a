"""What keeps a table quick to read and as long as it should be: compaction and retention.

Both are one `Append` that takes files away, so both hold only if the table is as it was when they
were planned; a materialise that lands meanwhile wins, and they are planned again next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from coldstream.jobs.materialise.table import StoredFile

_DAY_MS = 86_400_000


def plan_compaction(files: Sequence[StoredFile], target_bytes: int) -> list[tuple[StoredFile, ...]]:
    """Which files become one: neighbours of one stream and one unit of time, in offset order.

    A file of more than half the target is left alone: rewriting it would save little.

    Args:
        files: of the table.
        target_bytes: what a file should have.
    """
    place = _place
    groups: list[tuple[StoredFile, ...]] = []
    for _, members in groupby(sorted(files, key=lambda f: (*place(f), f.first_offset)), place):
        together: list[StoredFile] = []
        for file in members:
            if file.size > target_bytes // 2:
                continue
            if together and sum(each.size for each in together) + file.size > target_bytes:
                groups.append(tuple(together))
                together = []
            together.append(file)
        groups.append(tuple(together))
    return [group for group in groups if len(group) > 1]


def plan_retention(
    files: Sequence[StoredFile], keep_days: int, now_ms: int
) -> tuple[StoredFile, ...]:
    """Files all of whose rows are older than `keep_days`; only whole files go.

    Args:
        files: of the table.
        keep_days: as in a rule.
        now_ms: ms since the Unix epoch.
    """
    oldest = now_ms - keep_days * _DAY_MS
    return tuple(file for file in files if file.last_ms is not None and file.last_ms < oldest)


def _place(file: StoredFile) -> tuple[str, int]:
    return file.stream, -1 if file.time_unit is None else file.time_unit
