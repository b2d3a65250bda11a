"""Objects of a later release, after a rollback: nobody takes them for damage; nothing is lost."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, UnknownVersionError
from coldstream.fragment import parse_trailer
from coldstream.jobs.scrub.run import ScrubSettings
from coldstream.jobs.scrub.run import run as scrub
from coldstream.jobs.scrub.state import ScrubState
from coldstream.jobs.scrub.work import scrub as scrub_task
from coldstream.manifest.erasure import ErasureRecord, parse_erasure
from coldstream.manifest.quarantine import QuarantineRecord, parse_record
from coldstream.manifest.root import parse_root
from coldstream.osiris.blank import Erased
from coldstream.reader.verify import verify_stream
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.last_chunk import holds_last_chunk
from coldstream.usecases.rebalance import rebalance
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.repair import repair
from tests.support.later import later_fragment, later_node, longer_trailer
from tests.support.remote import PREFIX, STREAM, gap, no_pause, piece
from tests.unit.usecases.test_collect import GRACE, Tier

Later = Callable[[bytes], bytes]


#: What the current manifest refers to, and how a later release would write it.
OBJECTS = [
    pytest.param("root", later_node, id="root"),
    pytest.param("group", later_node, id="group"),
    pytest.param("fragment", later_fragment, id="fragment"),
    pytest.param("fragment", longer_trailer, id="fragment-with-a-longer-trailer"),
]


def rolled_back(kind: str, later: Later) -> Tier:
    """A tier in which one object of the current tree is of a later release."""
    tier = Tier()
    rebalance(tier.context, STREAM, branching=2, pause=no_pause)
    keys = {
        "root": tier.items.items[STREAM].root_key,
        "group": max(key for key in tier.memory.objects if key.endswith(".group")),
        "fragment": max(key for key in tier.memory.objects if key.endswith(".fragment")),
    }
    tier.memory.objects[keys[kind]] = later(tier.memory.objects[keys[kind]])
    tier.context = tier.new_context()
    return tier


@pytest.mark.parametrize(("kind", "later"), OBJECTS)
def test_what_a_later_release_wrote_is_no_damage_for_verify(kind: str, later: Later) -> None:
    tier = rolled_back(kind, later)

    with pytest.raises(UnknownVersionError, match="not known to this release") as caught:
        verify_stream(tier.store, tier.catalog, PREFIX, STREAM, deep=True)

    assert (caught.value.stream, bool(caught.value.key)) == (STREAM, True)
    assert "use the release that wrote it" in str(caught.value.remedy)


@pytest.mark.parametrize("accept_less", [False, True])
@pytest.mark.parametrize(("kind", "later"), OBJECTS)
def test_a_rebuild_lands_over_nothing_that_it_does_not_know(
    kind: str, later: Later, accept_less: bool
) -> None:
    tier = rolled_back(kind, later)
    before = tier.items.items[STREAM]

    for dry_run in (True, False):
        with pytest.raises(UnknownVersionError):
            rebuild(tier.context, STREAM, branching=2, dry_run=dry_run, accept_less=accept_less)

    after = tier.items.items[STREAM]
    assert (after.state, after.root_key) == (before.state, before.root_key)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("kind", "later"), OBJECTS)
def test_a_repair_mends_nothing_that_it_does_not_know(kind: str, later: Later, lost: bool) -> None:
    tier = rolled_back(kind, later)
    before = tier.tampered()

    with pytest.raises(UnknownVersionError):
        repair(tier.context, STREAM, ranges=[(0, 120)], lost=lost, branching=2, pause=no_pause)

    assert tier.tampered() == before


@pytest.mark.parametrize(("kind", "later"), OBJECTS)
def test_scrub_has_no_finding_where_it_knows_the_version_of_nothing(
    kind: str, later: Later
) -> None:
    tier = rolled_back(kind, later)
    settings = ScrubSettings(now_ms=tier.now)

    def look() -> Any:
        return scrub(
            tier.store,
            tier.catalog,
            PREFIX,
            [tier.items.items[STREAM]],
            ScrubState(),
            settings,
            lambda tasks: [
                scrub_task(tier.store, PREFIX, each, settings.effort, settings.ages)
                for each in tasks
            ],
        )

    if kind == "root":  # other streams go on
        outcome = look()
        assert (outcome.findings, list(outcome.failed)) == ([], [STREAM])
    else:
        with pytest.raises(UnknownVersionError):
            look()


@pytest.mark.parametrize("where", ["current", "rival", "tree"])
def test_collect_deletes_nothing_while_a_root_or_a_group_is_of_a_later_release(where: str) -> None:
    tier = Tier()
    rebalance(tier.context, STREAM, branching=2, pause=no_pause)
    tier.retire(tier.root().total_size // 2)
    tier.collect()
    item = tier.items.items[STREAM]
    key = item.root_key
    if where == "tree":
        key = max(key for key in tier.memory.objects if key.endswith("group"))
    elif where == "rival":
        key = key.replace(f"{item.uid:016x}", f"{item.uid ^ 1:016x}")
        tier.memory.objects[key] = tier.memory.objects[item.root_key]
    tier.memory.objects[key] = later_node(tier.memory.objects[key])
    tier.context = tier.new_context()
    tier.now += 2 * GRACE
    before = set(tier.memory.objects)

    with pytest.raises(UnknownVersionError):
        tier.collect()

    assert before <= set(tier.memory.objects)


def test_a_fragment_of_a_later_release_waits_for_the_release_that_knows_it() -> None:
    tier, fresh = Tier(), piece(120, 130)
    (path,) = tier.upload(fresh)
    tier.memory.objects[path] = later_fragment(fresh.data)

    report = commit_runs(tier.new_context(), STREAM, pause=no_pause)

    assert report.next_offset == 120
    (refused,) = report.refused
    assert (refused.key, "use the release" in str(refused.remedy)) == (path, True)
    found = gap(tier, 200)
    assert found is not None
    assert path in found.holding, "nobody declares lost what it holds"
    tier.settle()
    tier.memory.objects[path] = fresh.data  # as the later release sees it
    assert commit_runs(tier.new_context(), STREAM, pause=no_pause).next_offset == 130


def test_a_fragment_of_a_later_release_holds_up_no_other_upload() -> None:
    tier, fresh = Tier(), piece(120, 140, uid=1)
    (path,) = tier.upload(fresh)
    tier.memory.objects[path] = later_fragment(fresh.data)
    tier.upload(piece(120, 130, uid=2), piece(130, 140, uid=3))

    assert commit_runs(tier.new_context(), STREAM, pause=no_pause).next_offset == 140
    assert not holds_last_chunk(tier.new_context(), STREAM, tier.root(), path)


def test_a_fragment_of_a_later_release_that_reaches_over_the_end_is_left_for_that_release() -> None:
    tier, fresh = Tier(), piece(110, 140, uid=1)
    (path,) = tier.upload(fresh)
    tier.memory.objects[path] = later_fragment(fresh.data)

    report = commit_runs(tier.new_context(), STREAM, pause=no_pause, thorough=True)

    assert (report.next_offset, [each.key for each in report.refused]) == (120, [path])


def test_a_version_that_was_flipped_is_damage_as_any_flipped_bit_is() -> None:
    data = piece(0, 10).data
    root = Tier().root().encode()

    for bit in range(32):
        for parse, whole, at in ((parse_trailer, data, len(data) - 12), (parse_root, root, 4)):
            flipped = bytearray(whole)
            flipped[at + bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptDataError):
                parse(bytes(flipped))


@pytest.mark.parametrize("version", [0, 256, 2**32 - 1])
def test_a_version_that_no_release_has_is_damage(version: int) -> None:
    data = piece(0, 10).data

    with pytest.raises(CorruptDataError):
        parse_trailer(data[:-12] + struct.pack(">I", version) + data[-8:])


@pytest.mark.parametrize(
    ("record", "parse"),
    [
        (QuarantineRecord(), parse_record),
        (ErasureRecord(Erased.of([(1, 2, 1)]), 1, "why"), parse_erasure),
    ],
)
def test_a_record_of_a_later_version_is_no_damage_whatever_its_fields(
    record: QuarantineRecord | ErasureRecord, parse: Callable[[bytes], object]
) -> None:
    data = record.encode().replace(b'"version": 1', b'"version": 2, "more": []')

    with pytest.raises(UnknownVersionError):
        parse(data)
    with pytest.raises(CorruptDataError):
        parse(data.replace(b'"version": 2', b'"version": "2"'))
