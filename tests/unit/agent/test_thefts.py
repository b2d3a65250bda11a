"""What a thief may have prepared, and what people do wrong, when a theft is undone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.due import LEVEL_SECONDS
from coldstream.agent.stream.strangers import ForgedError, Strangers
from coldstream.agent.telling.progress import Notices
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import EntryKind
from coldstream.names import MAX_EPOCH
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.agent_requests import Open, encode
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.policy import PolicySet
from coldstream.plans.told_log import ToldLog
from coldstream.plans.undo_epoch import MAX_LEAP
from coldstream.remote.roots import load
from coldstream.usecases.amend import amend
from coldstream.usecases.claim_function import OwnRights, answer
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.erase import erase
from coldstream.usecases.quarantine import current_record
from coldstream.usecases.undo import plan_undo, undo
from coldstream_devkit.fragments import build_fragment
from coldstream_devkit.generator import append_chunks, build_chunk
from coldstream_devkit.simulation.inline import Inline
from tests.support.later import later_fragment

from .conftest import Site, no_pause
from .theft import STREAM, Thief, error_of, interrupt, remote_is_local, twin, undone, write


def holes(site: Site) -> list[tuple[int, int]]:
    root = load(site.context(), STREAM).root
    return [(e.first_offset, e.next_offset) for e in root.entries if e.kind is EntryKind.HOLE]


def log_from(site: Site, first: int, end: int, epoch: int = 1) -> None:
    """Local retention has taken what is below `first`."""
    shutil.rmtree(site.data_dir / STREAM, ignore_errors=True)
    append_chunks(
        site.data_dir / STREAM,
        [
            build_chunk(n, epoch, 1_790_000_000_000 + n // 10 * 100, [b"x"] * 10)
            for n in range(first, end, 10)
        ],
    )


def put(site: Site, made: Any, name: str = "thief") -> None:
    site.store.put(made.path("rabbitmq/"), made.data, write_id=name + str(made.key.uid))


def test_thief_uploads_beforehand_under_the_epoch_that_the_undo_will_take(
    site: Site, thief: Thief
) -> None:
    before = site.remote_chunks(STREAM)
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    # PUT while he had the rights: one object that would reach over all copies.
    forged = build_fragment(
        10, 210, stream=STREAM, epoch=2 + MAX_LEAP + 1, floor=10, uid=2**63, chunk_epochs=[1],
        timestamps=[1_790_000_000_100], body=lambda n: b"forged",
    )  # fmt: skip
    put(site, forged)
    log_from(site, 210, 260)  # local retention

    undone(site, false_claims=[2])
    error = error_of(site)

    assert site.remote_chunks(STREAM)[: len(before)] == before, (
        f"forged data is in the manifest; the agent says {error!r}"
    )


def test_copies_of_an_undo_that_died_are_not_taken_for_those_of_another(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = site.remote_chunks(STREAM)
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 220, epoch=2, floor=10)
    thief.claim(3, (0, 10, 1), (10, 16, 3))  # cuts his own
    monkeypatch.setattr("coldstream.usecases.undo.amend", interrupt)
    with pytest.raises(KeyboardInterrupt):  # the wrong one, and Ctrl-C
        undone(site, false_claims=[3])
    monkeypatch.undo()

    undone(site, false_claims=[2, 3])

    assert site.remote_chunks(STREAM) == before


def test_what_is_true_above_a_forged_twin_and_no_longer_local_is_no_hole(
    site: Site, thief: Thief
) -> None:
    """The agent tells of a twin at 200, goes on; a day later the undo, and retention was there."""
    put(site, twin(200, 210, body=b"forged"))
    commit_runs(site.context(), STREAM, pause=no_pause)
    write(site, 400)
    site.run()
    assert load(site.context(), STREAM).root.next_offset == 400
    log_from(site, 350, 420)  # local retention

    done = undone(site, offset=200, to=210)
    site.run(last_copy=True)

    assert [(each.first, each.next) for each in done.plan.sources] == [(210, 400)]
    assert holes(site) == [(200, 210)]
    assert load(site.context(), STREAM).root.next_offset == 420


@pytest.mark.parametrize("copied", [False, True])
def test_what_its_writer_uploads_while_an_undo_copies_is_put_back_too(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """A petabyte takes days, agents go on meanwhile, and local retention does not wait."""
    put(site, twin(200, 210, body=b"forged"))
    commit_runs(site.context(), STREAM, pause=no_pause)
    write(site, 300 if copied else 210)
    site.run()

    def meanwhile(*given: Any, **named: Any) -> Any:
        write(site, 400)
        site.run()
        assert load(site.context(), STREAM).root.next_offset == 400
        return amend(*given, **named)

    monkeypatch.setattr("coldstream.usecases.undo.amend", meanwhile)

    done = undone(site, offset=200, to=210)
    log_from(site, 350, 420)  # local retention
    site.run(last_copy=True)

    assert holes(site) == [(200, 210)]
    assert load(site.context(), STREAM).root.next_offset == 420
    assert [(each.first, each.next) for each in done.sources] == (
        [(210, 300), (300, 400)] if copied else [(210, 400)]
    )


@pytest.mark.parametrize("anew", [False, True])
def test_copies_of_an_undo_wait_for_its_claim_however_long_it_takes(
    site: Site, thief: Thief, anew: bool
) -> None:
    """What the thief has made reaches further than what is put back, or begins above it."""
    grace, now = 1000, [10**12]
    site.store._clock_ms = lambda: now[0]
    before = site.remote_chunks(STREAM)
    if anew:
        thief.claim(2, (90, 120, 2), (120, 130, 2))
        thief.forge(90, 240, epoch=2, floor=90)
    else:
        thief.claim(2, (0, 10, 1), (10, 17, 2))
        thief.forge(10, 240, epoch=2, floor=10)

    def days_pass(size: int) -> None:
        for _ in range(3):
            now[0] += 2 * grace
            collect(
                site.context(),
                site.store,
                STREAM,
                grace_ms=grace,
                run_ms=now[0],
                now_ms=now[0],
                held=lambda _: False,
            )

    context = replace(site.context(), pool=Inline)
    plan = plan_undo(context, STREAM, false_claims=[2])
    undo(context, site.store, plan, pause=no_pause, now_ms=1, progress=days_pass)

    assert site.remote_chunks(STREAM) == before


@pytest.mark.parametrize("chances", [(2**20 - 1, 0), (0, 2**20 - 1)])
def test_what_an_undo_that_died_has_copied_goes_once_another_has_landed(
    site: Site, thief: Thief, chances: tuple[int, int]
) -> None:
    """Its epoch was drawn, too, and may be above that of the one that has landed: what it had
    copied was kept for ever, and messages in it could not be erased."""
    grace, now = 1000, [10**12]
    site.store._clock_ms = lambda: now[0]
    before = site.remote_chunks(STREAM)
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 240, epoch=2, floor=10)

    def dies(size: int) -> None:
        raise KeyboardInterrupt

    context = replace(site.context(), pool=Inline)
    died, landed = (
        plan_undo(replace(context, new_uid=lambda: chance), STREAM, false_claims=[2])  # noqa: B023
        for chance in chances
    )
    with pytest.raises(KeyboardInterrupt):
        undo(context, site.store, died, pause=no_pause, now_ms=1, progress=dies)
    left = {key for key in site.store.objects if f".{died.epoch:010d}." in key}
    undo(context, site.store, landed, pause=no_pause, now_ms=1)
    for _ in range(3):
        now[0] += 2 * grace
        collect(
            site.context(),
            site.store,
            STREAM,
            grace_ms=grace,
            run_ms=now[0],
            now_ms=now[0],
            held=lambda _: False,
        )

    assert left
    assert left.isdisjoint(site.store.objects)
    assert site.remote_chunks(STREAM) == before


def test_a_true_claim_after_a_false_one_keeps_its_data(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    log = ((1, 0), (3, 200))
    write(site, 400, epochs=log)  # the next election; epoch 3 cuts what the thief made
    assert error_of(site) is None
    assert remote_is_local(site)
    log_from(site, 350, 420, epoch=3)

    with pytest.raises(InvalidInputError, match="epoch 3 has claimed after a false claim"):
        undone(site, false_claims=[2])
    site.run(last_copy=True)

    assert holes(site) == []


def test_the_same_undo_twice_does_no_harm(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    undone(site, false_claims=[2])
    write(site, 400)
    assert error_of(site) is None
    log_from(site, 350, 420)

    with pytest.raises(InvalidInputError, match="undone already"):
        undone(site, false_claims=[2])  # by a colleague, or from a shell's history
    site.run(last_copy=True)

    assert holes(site) == []


def test_an_undo_that_is_repeated_at_once_leaves_no_agent_out(site: Site) -> None:
    write(site, 200, epoch=1500)
    site.run()
    Thief(site).claim(1501, (0, 10, 1500), (10, 17, 1501))
    undone(site, false_claims=[1501])
    undone(site, offset=200)

    assert error_of(site) is None
    assert remote_is_local(site)


def test_a_first_claim_by_the_highest_epoch_is_refused(site: Site) -> None:
    context = site.context()
    log = KnownHistory((LocalChunk(0, 10, 1),))

    with pytest.raises(InvalidInputError, match="no broker counts"):
        Commits(context, OwnRights(context, no_pause, lambda: 0), STREAM, no_pause).claim(
            MAX_EPOCH, 0, QueueName(), log, lambda begin, end: None
        )

    write(site, 200)
    assert error_of(site) is None


def test_a_ledger_that_a_thief_has_filled_can_be_undone(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.manifest.ledger.MAX_CLAIMS", 12)
    monkeypatch.setattr("coldstream.usecases.claim.COMPACT_FROM", 5)
    at = 200
    for epoch in range(2, 13):
        thief.forge(at, at + 7, epoch=epoch - 1, floor=0 if epoch == 2 else at)
        at += 7
        context = site.context()
        log = KnownHistory((LocalChunk(at, at + 7, epoch),))
        Commits(context, OwnRights(context, no_pause, lambda: 0), STREAM, no_pause).claim(
            epoch, 0, QueueName(), log, lambda begin, end: None
        )
    assert len(load(site.context(), STREAM).root.ledger.claims) == 12

    undone(site, false_claims=range(2, 13))

    assert error_of(site) is None


def test_a_quarantine_that_a_thief_has_filled_with_what_is_true_can_be_undone(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.manifest.quarantine.CLAIMED_TIMELINES", 5)
    for number in range(5):
        end = 190 - 10 * number  # each cuts ten true messages more
        chunks = [(n, n + 10, 1) for n in range(0, end, 10)]
        thief.claim(2 + number, *chunks, (end, end + 7, 2 + number))
    thief.forge(150, 157, epoch=6, floor=150)

    undone(site, false_claims=range(2, 7))

    assert error_of(site) is None


def look(site: Site, *, own: Any = None, end: int = 220, notices: Notices | None = None) -> None:
    log = StreamLog(site.data_dir / STREAM)
    strangers = Strangers(site.context(), log, 0.0, Notices() if notices is None else notices)
    strangers.opened(200, 0.0)
    if own is not None:
        strangers.uploaded(own)
    strangers.look(1, end, 260, 1.0)


def two(body: bytes) -> Any:
    return build_fragment(
        200, 220, stream=STREAM, epoch=1, floor=0, uid=2**63 + 200,
        timestamps=[1_790_000_002_000, 1_790_000_002_100], body=lambda n: body,
    )  # fmt: skip


def test_a_twin_with_the_uid_of_an_own_upload_is_told(site: Site, thief: Thief) -> None:
    write(site, 260)
    forged = two(b"forged")
    put(site, forged)
    commit_runs(site.context(), STREAM, pause=no_pause)
    own = replace(forged.key, next_offset=210)  # the agent's upload of 200..210, seen by LIST

    with pytest.raises(ForgedError):
        look(site, own=own)


def test_one_damaged_chunk_does_not_hide_forged_ones(site: Site, thief: Thief) -> None:
    write(site, 260)
    forged = two(b"forged")
    data = bytearray(forged.data)
    data[forged.trailer.index_position - 3] ^= 1  # in the last chunk; nobody checks it at a commit
    site.store.put(forged.path("rabbitmq/"), bytes(data), write_id="t")
    commit_runs(site.context(), STREAM, pause=no_pause)
    assert load(site.context(), STREAM).root.next_offset == 220

    with pytest.raises(ForgedError):
        look(site)


def test_a_fragment_of_a_later_release_is_for_agents_of_that_release_to_compare(
    site: Site, thief: Thief
) -> None:
    # While agents are upgraded one after the other, behind functions that know it already.
    write(site, 260)
    other = two(b"another")
    put(site, other)
    commit_runs(site.context(), STREAM, pause=no_pause)
    path = other.path("rabbitmq/")
    site.store.objects[path] = later_fragment(site.store.objects[path])
    notices = Notices()

    look(site, notices=notices)

    assert notices == []


def test_damage_of_the_local_log_is_no_forgery(site: Site, thief: Thief) -> None:
    """Another node's agent of the same epoch has uploaded it; then this node's disk rots."""
    write(site, 220)
    before = site.local_chunks(STREAM)
    site.run()
    segment = sorted((site.data_dir / STREAM).glob("*.segment"))[-1]
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(bytes(data))
    assert site.remote_chunks(STREAM) == before

    look(site)


def test_what_was_erased_is_no_forgery_and_a_forgery_beside_it_is_one(
    site: Site, thief: Thief
) -> None:
    write(site, 220)
    site.run()
    erased = OffsetSet.of([(203, 204), (211, 213)])
    erase(
        site.context(), STREAM, erased, PolicySet(()), reason="", now_ms=1, branching=1024,
        pause=no_pause,
    )  # fmt: skip
    assert site.remote_chunks(STREAM) != site.local_chunks(STREAM)

    look(site)
    put(site, two(b"forged"))
    commit_runs(site.context(), STREAM, pause=no_pause)
    write(site, 240)
    put(site, twin(220, 230, body=b"forged"))
    commit_runs(site.context(), STREAM, pause=no_pause)

    with pytest.raises(ForgedError):
        look(site, end=230)


def test_an_idle_agent_uploads_again_what_an_undo_has_cut_off(site: Site, thief: Thief) -> None:
    """A forged fragment entered while no agent ran, and a person found it by CloudTrail."""
    put(site, twin(200, 210, body=b"forged"))
    commit_runs(site.context(), STREAM, pause=no_pause)
    write(site, 260)
    agent = site.agent(once=False, flush_ms=0, poll_seconds=10.0)
    looks: list[int] = []

    def report(rows: Any) -> None:
        assert rows[0].error is None
        looks.append(rows[0].next_offset)
        if len(looks) == 20:
            assert rows[0].next_offset == 260
            undone(site, offset=200)
        if len(looks) > 20 + LEVEL_SECONDS / 5:
            agent.stop()

    agent.report = report
    agent.run()

    assert load(site.context(), STREAM).root.next_offset == 260
    assert remote_is_local(site)


def test_a_thief_cannot_say_vhost_and_cluster_of_a_stream_that_has_none(site: Site) -> None:
    """Rules go by these names, and delete."""
    for name in (QueueName("staging", "scratch", ""), QueueName("staging", "/", "orders")):
        request = Open(STREAM, 1, 0, name, ToldLog(None, {}))
        answer(
            site.context(),
            json.loads(encode(request)),
            pause=no_pause,
            now_ms=0,
            cluster="prod",
        )

    item = site.catalog.get(STREAM)
    assert item is not None
    assert item.name == QueueName("prod", "/", "orders")


def test_a_queue_with_a_name_outside_ascii_fits_its_directory() -> None:
    """By release it has one "_" for each byte, code point or grapheme."""
    assert QueueName("c", "/", "für").fits("__f__r_1745252105682952932")
    assert QueueName("c", "/", "für").fits("__f_r_1745252105682952932")


def test_a_name_that_does_not_fit_stops_no_claim(site: Site) -> None:
    request = Open(STREAM, 1, 0, QueueName("c", "/", "other"), ToldLog(None, {}))

    done = answer(site.context(), json.loads(encode(request)), pause=no_pause, now_ms=0)

    assert done.misfit == QueueName("c", "/", "other")
    assert "claimed" in done.row


def test_a_timeline_that_is_kept_can_be_put_back_when_the_ledger_has_forgotten_its_claim(
    site: Site, thief: Thief
) -> None:

    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 80, epoch=2, floor=10)
    context = site.context()
    log = KnownHistory((LocalChunk(80, 90, 3),))
    Commits(context, OwnRights(context, no_pause, lambda: 0), STREAM, no_pause).claim(
        3, 0, QueueName(), log, lambda begin, end: None
    )
    thief.forge(80, 87, epoch=3, floor=80)

    class Step:
        nodes = ()

        def __init__(self, root: Any) -> None:
            self.root = root

    # What retention makes of it (plans/retention: first offset, and the ledger above it).
    amend(
        context,
        STREAM,
        lambda loaded: Step(
            replace(
                loaded.root,
                first_offset=80,
                ledger=loaded.root.ledger.above(80),
                entries=type(loaded.root.entries).of(
                    [e for e in loaded.root.entries if e.first_offset >= 80]
                ),
            )
        ),
        pause=no_pause,
    )
    assert current_record(context, STREAM)[1].timeline(2) is not None

    undone(site, false_claims=[2, 3])
    assert load(site.context(), STREAM).root.next_offset == 200


def test_hundreds_of_false_claims_can_be_undone(site: Site, thief: Thief) -> None:
    for epoch in range(2, 502):
        thief.claim(epoch, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 40, epoch=501, floor=10)

    undone(site, false_claims=range(2, 502))

    assert error_of(site) is None


def test_the_end_of_what_is_forged_must_be_a_boundary(site: Site, thief: Thief) -> None:
    for offset, to in ((100, 100), (100, 195), (100, 201)):
        with pytest.raises(InvalidInputError):
            undone(site, offset=offset, to=to)
