"""Every corruption that is planted is found, and located: the object, the offsets, nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.jobs.scrub import work
from coldstream.jobs.scrub.reading import Effort
from coldstream.jobs.scrub.run import ScrubOutcome, first_error
from coldstream.manifest.walk import object_path
from coldstream.soundness.findings import Finding, FindingKind, Severity
from tests.support.corruptions import (
    CORRUPTIONS,
    GROUP_CORRUPTIONS,
    Planted,
    check_headers,
)
from tests.support.scrub_site import (
    BY_RANGES,
    SMALL,
    STREAM,
    Anatomy,
    a_tier,
    leaf,
    path_of,
    root_of,
    scrub_all,
)
from tests.support.tier import PREFIX

QUICK = Effort(quick=True, in_flight=3)


def found(outcome: ScrubOutcome, planted: Planted) -> list[Finding]:
    return [
        each
        for each in outcome.findings
        if each.kind in planted.kinds
        and (not planted.key or each.key == planted.key)
        and each.first_offset < planted.next_offset
        and planted.first < each.next_offset
    ]


def elsewhere(outcome: ScrubOutcome, planted: Planted) -> list[str]:
    """Findings that are more than notes, at offsets that are sound."""
    first, next_offset = planted.around or (planted.first, planted.next_offset)
    return [
        str(each)
        for each in outcome.bad
        if not (each.first_offset < next_offset and first < each.next_offset)
    ]


def test_there_are_far_more_than_twenty_ways() -> None:
    assert len(CORRUPTIONS) + len(GROUP_CORRUPTIONS) >= 80
    check_headers(a_tier())


@pytest.mark.parametrize("effort", [SMALL, BY_RANGES], ids=["whole", "by ranges"])
@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_it_is_found_and_located(name: str, tree: bool, effort: Effort) -> None:
    tier = a_tier(tree=tree)
    planted = CORRUPTIONS[name](tier)

    outcome = scrub_all(tier, effort=effort)

    hits = found(outcome, planted)
    assert hits, [str(each) for each in outcome.findings]
    # What is told reaches no further than what is wrong.
    assert min(each.first_offset for each in hits) >= planted.first, hits
    assert max(each.next_offset for each in hits) <= planted.next_offset, hits
    if name != "two damaged chunks of one fragment":
        assert elsewhere(outcome, planted) == []
    assert all("nobody can say why" not in each.words for each in outcome.findings)


@pytest.mark.parametrize("name", GROUP_CORRUPTIONS)
def test_damage_of_a_group_is_found_and_located(name: str) -> None:
    tier = a_tier(tree=True)
    planted = GROUP_CORRUPTIONS[name](tier)

    outcome = scrub_all(tier)

    assert found(outcome, planted), [str(each) for each in outcome.findings]
    assert elsewhere(outcome, planted) == []


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_quick_look_finds_what_metadata_trailers_and_indexes_show(name: str) -> None:
    tier = a_tier()
    planted = CORRUPTIONS[name](tier)

    assert found(scrub_all(tier, effort=QUICK), planted) or not planted.quick


def test_damage_does_not_hide_the_next() -> None:
    tier = a_tier()
    planted = [CORRUPTIONS["two damaged chunks of one fragment"](tier)]

    outcome = scrub_all(tier)

    crcs = [each for each in outcome.findings if each.kind is FindingKind.CHUNK_CRC]
    assert len(crcs) == 2
    assert crcs[1].first_offset == planted[0].first
    assert crcs[0].next_offset <= crcs[1].first_offset


def test_the_worst_finding_becomes_an_error_that_says_where() -> None:
    tier = a_tier()
    planted = CORRUPTIONS["a raw flip in the data"](tier)

    error = first_error(scrub_all(tier))

    assert error is not None
    assert (error.offset, error.key) == (planted.first, planted.key)


def test_notes_are_no_error() -> None:
    tier = a_tier()
    CORRUPTIONS["a second object for a range"](tier)

    outcome = scrub_all(tier)

    assert [each.severity for each in outcome.findings] == [Severity.NOTE]
    assert first_error(outcome) is None


def test_no_number_of_notes_hides_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consolidation leaves very many small fragments behind, until `collect` takes them."""
    monkeypatch.setattr(work, "MAX_FINDINGS", 3)
    tier = a_tier()
    small = leaf(tier, 0)
    for number in range(5):
        double = replace(small, uid=small.uid + 2**40 + number)
        tier.store.put(path_of(double), tier.store.objects[path_of(small)], write_id="double")
    planted = CORRUPTIONS["a raw flip in the data"](tier)

    outcome = scrub_all(tier)

    assert found(outcome, planted)
    assert outcome.count(Severity.NOTE) == 3
    assert (outcome.untold, outcome.untold_notes) == (0, 2)


def test_findings_that_are_too_many_to_be_told_are_an_error_though_all_others_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work, "MAX_FINDINGS", 0)
    tier = a_tier()
    CORRUPTIONS["a raw flip in the data"](tier)

    outcome = scrub_all(tier)

    assert outcome.findings == []
    assert outcome.untold
    assert first_error(outcome) is not None


@pytest.mark.parametrize("level", ["root", "group"])
def test_a_node_whose_checksum_is_wrong_is_one_finding_and_blames_no_fragment(level: str) -> None:
    # Some byte of each of its numbers: of the header, of the first entry, of the last.
    tier = a_tier(tree=True)
    item, root = tier.catalog.items[STREAM], root_of(tier)
    entry = root.entries[0]
    node = item.root_key if level == "root" else object_path(PREFIX, STREAM, entry)
    first, next_offset = (
        (item.first_offset, item.next_offset)
        if level == "root"
        else (entry.first_offset, entry.next_offset)
    )
    good = tier.store.objects[node]

    for at in range(8, len(good), 7):
        tier.store.objects[node] = good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
        outcome = scrub_all(tier)

        (found,) = outcome.bad
        assert (found.key, found.kind) == (node, FindingKind(level)), (at, str(found))
        assert (found.first_offset, found.next_offset) == (first, next_offset), at
        checked = outcome.state.streams.get(STREAM, ())
        assert all(high <= first or low >= next_offset for low, high, _ in checked)


@pytest.mark.parametrize("effort", [SMALL, BY_RANGES], ids=["whole", "by ranges"])
@pytest.mark.parametrize("distance", [1, 6])
def test_fragments_that_were_swapped_are_damaged_and_no_others(
    distance: int, effort: Effort
) -> None:
    tier = a_tier()
    one, other = leaf(tier, 4), leaf(tier, 4 + distance)
    keys = [each.data_key(STREAM).path(PREFIX) for each in (one, other)]
    objects = tier.store.objects
    objects[keys[0]], objects[keys[1]] = objects[keys[1]], objects[keys[0]]

    outcome = scrub_all(tier, effort=effort)

    assert {each.key for each in outcome.bad} == set(keys)
    for entry, key in zip((one, other), keys, strict=True):
        mine = [each for each in outcome.bad if each.key == key]
        assert min(each.first_offset for each in mine) == entry.first_offset
        assert max(each.next_offset for each in mine) == entry.next_offset


@pytest.mark.parametrize("last", [False, True], ids=["whole fragment", "epoch of its last chunk"])
def test_a_fragment_that_is_not_what_it_should_be_says_nothing_about_its_neighbour(
    last: bool,
) -> None:
    # Chunks have epoch 1 up to the fourth fragment, and 2 behind.
    tier = a_tier()
    early, late = leaf(tier, 1), leaf(tier, 8)
    keys = [each.data_key(STREAM).path(PREFIX) for each in (early, late)]
    objects = tier.store.objects
    if last:
        whole = Anatomy.of(objects[keys[0]])
        whole.set_header(-1, epoch=9)
        objects[keys[0]] = whole.whole()
    else:
        objects[keys[0]], objects[keys[1]] = objects[keys[1]], objects[keys[0]]

    outcome = scrub_all(tier)

    assert {each.key for each in outcome.bad} == {*keys[: 1 if last else 2]}


def test_chunk_epochs_that_fall_inside_a_fragment_are_told_though_its_trailer_allows_each() -> None:
    # Chunks have epoch 1 up to the fourth fragment, and 2 behind.
    tier = a_tier()
    key = path_of(leaf(tier, 3))
    whole = Anatomy.of(tier.store.objects[key])
    assert [whole.header_of(number).epoch for number in range(4)] == [1, 2, 2, 2]
    whole.set_header(2, epoch=1)
    tier.store.objects[key] = whole.whole()

    outcome = scrub_all(tier)

    falling = whole.records[2].chunk_id
    assert {each.key for each in outcome.bad} == {key}
    assert (FindingKind.EPOCHS, falling) in {(e.kind, e.first_offset) for e in outcome.bad}
