"""A stream that is as it should be has no finding, whatever it holds and however it is read."""

from __future__ import annotations

import pytest

from coldstream.jobs.scrub.reading import Effort
from coldstream.manifest.entries import EntryKind
from coldstream.soundness.diagnosis import diagnose
from coldstream.soundness.fragment import holds
from coldstream.soundness.notes import Subject
from tests.support.scrub_site import (
    BY_RANGES,
    SMALL,
    STREAM,
    a_tier,
    groups_of,
    leaf,
    path_of,
    root_of,
    scrub_all,
    young_tier,
)
from tests.support.tier import FIXTURES

QUICK = Effort(quick=True, in_flight=3, range_size=4096)


@pytest.mark.parametrize("effort", [SMALL, BY_RANGES, QUICK], ids=["whole", "by ranges", "quick"])
@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_streams_of_real_brokers_have_no_finding(name: str, effort: Effort) -> None:
    tier = young_tier()
    stream = tier.add_fixture(name)

    outcome = scrub_all(tier, streams=[stream], effort=effort)

    assert outcome.findings == []
    assert outcome.fragments == tier.catalog.items[stream].fragments


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("effort", [SMALL, BY_RANGES, QUICK], ids=["whole", "by ranges", "quick"])
def test_a_stream_with_sub_batches_filters_and_tracking_has_no_finding(
    tree: bool, effort: Effort
) -> None:
    tier = a_tier(tree=tree, fragments=24)

    outcome = scrub_all(tier, effort=effort)

    assert outcome.findings == []
    assert (outcome.fragments, outcome.chunks) == (24, 96)
    if not effort.quick:
        assert outcome.bytes == root_of(tier).total_size


def test_the_exact_look_finds_nothing_in_what_the_quick_one_lets_pass() -> None:
    tier = a_tier()
    for entry in tier.leaves(STREAM, root_of(tier)):
        data = memoryview(tier.store.objects[path_of(entry)])
        subject = Subject(entry.data_key(STREAM), path_of(entry), entry, 0)

        assert holds(data, subject) is not None
        assert diagnose(data, subject)[0] == []


def test_a_declared_hole_is_no_finding() -> None:
    tier = young_tier()
    groups = groups_of(4)
    first, next_offset = _span(groups[2])
    hole = tier.hole(first, next_offset, epoch=2)
    tier.add(STREAM, [*groups[:2], hole, groups[3]])

    assert scrub_all(tier).findings == []
    assert leaf(tier, 2).kind is EntryKind.HOLE


def _span(chunks: list[bytes]) -> tuple[int, int]:
    from tests.support.tier import headers_of

    headers = headers_of(chunks)
    return headers[0].chunk_id, headers[-1].next_offset
