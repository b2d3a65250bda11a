"""A window has no more files than a driver can be told of, whatever time streams reach over."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from coldstream.jobs.materialise.engine import TaskPiece
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.plan import files_of, task_windows
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rules import TableFiles, TablePartition, TableRule
from tests.support.tier import chunk
from tests.unit.jobs.tier_site import TierSite

STREAM = "__s_1"
YEAR_MS = 365 * 86_400_000


@pytest.mark.parametrize(
    ("partition", "files", "pieces", "most"),
    [
        (TablePartition.DAY, TableFiles.OWN, 1, 20_000 // 366),
        (TablePartition.DAY, TableFiles.SHARED, 3, 20_000 // 366),
        (TablePartition.HOUR, TableFiles.OWN, 1, 20_000 // 4000),
        (TablePartition.NONE, TableFiles.OWN, 1, 2000),
    ],
)
def test_streams_of_a_year_have_a_file_a_day_each_and_are_committed_few_at_a_time(
    partition: TablePartition, files: TableFiles, pieces: int, most: int
) -> None:
    """Some kilobytes of each file travel to the driver: those of 1000 streams are too many."""
    rule = TableRule(".*", "db.t", partition=partition, files=files)
    task = (TaskPiece(STREAM, (0, 1), None, 1, YEAR_MS),) * pieces

    windows = task_windows([(task, 1)] * 3000, 10**9, partial(files_of, rule))

    sizes = [len(each) for each in windows]
    assert (max(sizes), sum(sizes)) == (most, 3000)


def test_a_window_of_a_table_of_the_latest_has_no_more_files_than_a_driver_can_be_told_of() -> None:
    """Each of its tasks writes a file a bucket; those of 2000 streams were half a million."""
    rule = TableRule(
        ".*", "db.t", latest=Latest(LatestKey.parse("body.id"), buckets=256), body="json"
    )
    task = (TaskPiece(STREAM, (0, 1), None, 1, YEAR_MS),)

    windows = task_windows([(task, 1)] * 3000, 10**9, partial(files_of, rule))

    sizes = [len(each) for each in windows]
    assert (max(sizes), sum(sizes)) == (20_000 // 256, 3000)


def test_the_time_that_a_piece_reaches_over_is_its_share_of_what_the_manifest_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = TierSite({}, partition_bytes=400).patched(monkeypatch)
    root = site.tier.add_tree(
        STREAM, [[chunk(n, b"x" * 50, timestamp=1000 * n)] for n in range(40)]
    )
    assert root.entries[0].kind.level
    everything = Ranges.of([(0, 40)])

    parts = site.engine.pieces(site.now(STREAM), everything)
    (whole,) = replace(site, partition_bytes=2**20).engine.pieces(site.now(STREAM), everything)

    assert whole.reach_ms == 39_000
    assert len(parts) > 5
    assert all(part.reach_ms <= 2 * whole.reach_ms // len(parts) for part in parts)
    assert sum(part.reach_ms for part in parts) <= whole.reach_ms
