"""When the agent may claim: its log must still show what proves the epoch, and be long enough."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from coldstream.agent.broker.members import LastCopy, check_alone
from coldstream.agent.disk.history import CommittedHistory
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import StuckManifestError
from coldstream.agent.stream.state import Behind, Cutting
from coldstream.errors import DivergedError, LostRangeError, UnavailableError
from coldstream.manifest.ledger import Ledger
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.rebuild import rebuild
from coldstream_devkit.claims import claim
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site, no_pause
from .disturbed import Run, durable
from .machine import EPOCH_MS

STREAM = "__orders_1"


class Another:
    """Another member whose log begins at some offset."""

    def __init__(self, begin: int | None) -> None:
        self.begin = begin

    def earliest(self, stream: str) -> int | None:
        del stream
        return self.begin

    def lone(self, stream: str) -> bool:
        del stream
        return False


def test_a_log_that_lost_the_chunk_of_its_epoch_in_the_middle_of_a_claim_says_nothing(
    site: Any,
) -> None:
    """Found by the simulator: the shorter log differed from nothing, so the claim set its floor
    above what its own epoch had written, and the stream stood still until the next election."""
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10, epochs=((1, 0), (2, 90)))
    log = StreamLog(site.data_dir / STREAM)
    history = CommittedHistory(log, 100, epoch=2)
    assert [each.epoch for each in history.chunks_near(1000)] == [2]

    index = log.index_path(0)
    index.write_bytes(index.read_bytes()[:-29])

    for look in (
        lambda: history.chunks_near(1000),
        lambda: history.chunks_between(0, 50),
        history.first_offset,
    ):
        with pytest.raises(UnavailableError, match="does not end in a chunk of epoch 2"):
            look()


def test_a_log_that_follows_another_writer_by_now_says_nothing_for_the_old_one(site: Any) -> None:
    """Found by the simulator: looks at two histories were taken for one, and all was cut off."""
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10, epochs=((1, 0), (3, 90)))

    history = CommittedHistory(StreamLog(site.data_dir / STREAM), 100, epoch=2)

    with pytest.raises(UnavailableError, match="does not end in a chunk of epoch 2"):
        history.chunks_near(1000)


def test_a_log_that_begins_above_the_manifest_leaves_the_claim_to_a_longer_one() -> None:
    """Found by the simulator: local retention had taken what would have shown the divergence."""
    with pytest.raises(LostRangeError, match="begins at 24: let its agent claim"):
        check_alone(Another(24), STREAM, begin=32, end=27)
    check_alone(Another(32), STREAM, begin=32, end=27)
    check_alone(Another(None), STREAM, begin=32, end=27)
    check_alone(LastCopy(), STREAM, begin=32, end=27)


def test_without_a_word_about_other_members_only_a_log_that_joins_the_manifest_claims() -> None:
    check_alone(None, STREAM, begin=27, end=27)
    with pytest.raises(LostRangeError, match="--last-copy"):
        check_alone(None, STREAM, begin=28, end=27)


def test_a_gap_after_a_new_epoch_is_told_as_a_gap_and_not_as_another_history() -> None:
    with pytest.raises(LostRangeError, match="offsets 27 to 31 are not in the manifest") as gap:
        check_alone(None, STREAM, begin=32, end=27)
    assert "shares nothing" not in str(gap.value)
    with pytest.raises(LostRangeError, match="shows nothing that could be compared"):
        check_alone(None, STREAM, begin=20, end=27)


def test_a_member_with_a_younger_log_leaves_it_to_a_longer_one_to_begin_the_stream(
    site: Any,
) -> None:
    """Found by the simulator: what lay below was never uploaded, and nobody said so."""
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10, start_offset=50)

    refused = site.run(members=Another(0))[STREAM]

    assert isinstance(refused.error, LostRangeError)
    assert STREAM not in site.catalog.items
    assert site.run(members=Another(50))[STREAM].error is None
    assert site.catalog.items[STREAM].first_offset == 50


def grow(site: Site, first: int, count: int, epoch: int) -> None:
    chunks = [build_chunk(n, epoch, EPOCH_MS + n, [b"x"]) for n in range(first, first + count)]
    append_chunks(site.data_dir / STREAM, chunks)


@pytest.mark.parametrize("busy", [False, True])
def test_an_agent_whose_own_claim_is_gone_from_the_ledger_claims_again(
    site: Site, busy: bool
) -> None:
    """Found by a stranger: it uploaded under an epoch that nobody accepts, until a restart."""
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)

    def lose() -> None:
        """The table is lost, and all that knows of epoch 2."""
        for key in [key for key in site.store.objects if ".0000000002." in key]:
            del site.store.objects[key]
        site.catalog.items.clear()
        rebuild(site.context(), STREAM, branching=4, dry_run=False)
        assert site.catalog.items[STREAM].ledger == Ledger.of([(1, 0)])
        grow(site, 52, 3, 2)

    run = Run(site, most_looks=600)
    run.happens = {8: lambda: grow(site, 50, 2, 2), 20: lose}
    if busy:
        run.happens[19] = lambda: setattr(run.machine, "held", True)
        run.happens[22] = lambda: setattr(run.machine, "held", False)
    (row,) = run.go()

    assert durable(site, STREAM)
    assert row.error is None
    assert site.catalog.items[STREAM].ledger.floor(2) is not None
    assert run.looks < 200


def test_an_agent_sees_at_once_that_a_higher_epoch_has_claimed_below_what_it_uploaded(
    site: Site,
) -> None:
    """Else what was cut off and written again waits until somebody looks why nothing moves."""
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)

    def fail_over() -> None:
        """The next writer never had [50, 60). Its own agent claims, and uploads nothing."""
        shutil.rmtree(site.data_dir / STREAM)
        write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)
        grow(site, 50, 5, 2)
        log = StreamLog(site.data_dir / STREAM)
        own = CommittedHistory(log, 55, epoch=2)
        claim(site.context(), STREAM, 2, log=own, pause=no_pause)
        assert site.catalog.items[STREAM].ledger == Ledger.of([(1, 0), (2, 50)])
        run.never = False

    def write_on_alone() -> None:
        run.never = True
        grow(site, 50, 10, 1)

    run = Run(site, most_looks=600, settings={"nudge_seconds": 300.0})
    run.happens = {8: write_on_alone, 20: fail_over}
    (row,) = run.go()

    assert durable(site, STREAM)
    assert row.error is None
    assert run.machine.now < 100


def test_an_agent_whose_claim_has_another_floor_in_the_ledger_takes_that_floor(
    site: Site,
) -> None:
    """A rebuild without any root takes floors from what is left."""
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)

    def other_floor() -> None:
        context = site.context()
        loaded = load(context, STREAM)
        assert loaded.root.ledger == Ledger.of([(1, 0), (2, 50)])
        publish(context, loaded, replace(loaded.root, ledger=Ledger.of([(1, 0), (2, 52)])))
        grow(site, 52, 3, 2)

    run = Run(site, most_looks=600)
    run.happens = {8: lambda: grow(site, 50, 2, 2), 20: other_floor}
    (row,) = run.go()

    assert durable(site, STREAM)
    assert row.error is None
    assert run.looks < 100


def test_what_lies_below_the_floor_of_its_claim_is_uploaded_as_the_epoch_that_may_write_there(
    site: Site,
) -> None:
    """Found by the simulator: metadata and a fragment below the floor were lost, and the agent PUT
    the range again and again under an epoch that no commit takes there."""
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10)

    def lose() -> None:
        """The table is lost, all metadata, and the last fragment of epoch 1; epoch 2 has some."""
        for key in list(site.store.objects):
            if "/metadata/" in key or ("0060.0000000001." in key and "/data/" in key):
                del site.store.objects[key]
        site.catalog.items.clear()
        rebuild(site.context(), STREAM, branching=4, dry_run=False, accept_less=True)
        item = site.catalog.items[STREAM]
        assert item.ledger == Ledger.of([(1, 0), (2, 60)])
        assert item.next_offset < 60
        grow(site, 65, 3, 2)

    run = Run(site, most_looks=600, settings={"target_size": 1})
    run.happens = {8: lambda: grow(site, 60, 5, 2), 20: lose}
    (row,) = run.go()

    assert durable(site, STREAM)
    assert not isinstance(row.error, StuckManifestError)
    assert run.looks < 200


def test_a_claim_that_is_never_in_the_ledger_is_not_made_again_and_again(site: Site) -> None:
    """Whatever the table says: a claim costs a dozen requests, and a stream is looked at often."""
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)
    run = Run(site, most_looks=1200, never=True, settings={"poll_seconds": 0.5})
    opened: list[float] = []

    def another_floor() -> None:
        follower = run.agent._followers[STREAM]
        state = follower.course.state
        if isinstance(state, Cutting | Behind) and state.claim.ledger.floor(1) != 999:
            opened.append(run.machine.now)
            # As if the table had another one for ever.
            claim = replace(state.claim, ledger=Ledger.of([(1, 999)]))
            follower.course = replace(follower.course, state=replace(state, claim=claim))
        if run.looks % 5 == 0:
            grow(site, 50 + run.looks // 5 - 1, 1, 1)

    run.happens = dict.fromkeys(range(5, 1200), another_floor)
    run.go()

    assert 5 < len(opened) <= run.machine.now / 30 + 2


@pytest.mark.parametrize("target_size", [1, 2**20])
def test_an_agent_goes_on_behind_a_hole_that_its_own_log_could_fill_and_says_so(
    site: Site, target_size: int
) -> None:
    """Found by the simulator: a rebuild gave up the last fragment, and the writer that still had it
    was told that its log was another history, until the next election."""
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)
    site.run(target_size=target_size)
    (last,) = [key for key in site.store.objects if "-00000000000000000050." in key]
    del site.store.objects[last]
    rebuild(site.context(), STREAM, branching=4, dry_run=False, accept_less=True)
    grow(site, 50, 5, 1)

    row = site.run()[STREAM]

    assert row.error is None
    item = site.catalog.items[STREAM]
    assert (item.next_offset, item.epoch) == (55, 1)
    (told,) = [each for each in row.notices if "--from-dir" in each]
    first = int(last.rpartition("/")[2][:20])
    assert f"--range {first}..50" in told
    assert STREAM in told


def test_a_log_without_the_boundary_at_which_a_manifest_ends_in_a_hole_is_another_history(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=50, chunk_messages=10)
    site.run()
    (last,) = [key for key in site.store.objects if "-00000000000000000050." in key]
    del site.store.objects[last]
    rebuild(site.context(), STREAM, branching=4, dry_run=False, accept_less=True)
    shutil.rmtree(site.data_dir / STREAM)
    write_stream(site.data_dir / STREAM, messages=56, chunk_messages=7)

    row = site.run()[STREAM]

    assert isinstance(row.error, DivergedError)
    assert site.catalog.items[STREAM].next_offset == 50
