"""False claims and forged fragments are undone, and the real writer goes on where it was."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.strangers import ForgedError, Strangers
from coldstream.agent.telling.progress import Notices
from coldstream.errors import ConflictError, DivergedError, FencedError, InvalidInputError
from coldstream.fragment import HEADER
from coldstream.manifest.catalog import Commit, QueueName
from coldstream.manifest.entries import EntryKind
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.undo_epoch import MAX_LEAP
from coldstream.ports import CommitOutcome, Landed
from coldstream.remote.roots import load
from coldstream.remote.trailers import read_index, read_trailer
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.holes import ChainGap
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.undo import _last_undo, plan_undo, undo
from coldstream_devkit.generator import append_chunks, build_chunk
from tests.support.crashes import no_answer

from .conftest import Site, no_pause
from .theft import (
    STREAM,
    Thief,
    error_of,
    interrupt,
    remote_is_local,
    twin,
    undone,
    write,
)


@pytest.mark.parametrize("false_epoch", [2, MAX_LEAP + 1])
def test_what_a_false_claim_cut_off_is_back_and_the_writer_goes_on(
    site: Site, thief: Thief, false_epoch: int
) -> None:
    thief.claim(false_epoch, (0, 10, 1), (10, 17, false_epoch))
    thief.forge(10, 40, epoch=false_epoch, floor=10)
    write(site, 260)
    assert isinstance(error_of(site), FencedError)

    done = undone(site, false_claims=[false_epoch])

    assert (done.plan.offset, done.next_offset, done.left) == (10, 200, [])
    assert error_of(site) is None
    assert remote_is_local(site)
    assert load(site.context(), STREAM).root.next_offset == 260


def test_what_the_local_log_no_longer_has_is_put_back_too(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 40, epoch=2, floor=10)
    before = site.local_chunks(STREAM)
    write(site, 60, start_offset=200)
    shutil.rmtree(site.data_dir / STREAM)
    append_chunks(
        site.data_dir / STREAM,
        [build_chunk(200 + 10 * n, 1, 1_790_000_100_000 + n, [b"x"] * 10) for n in range(6)],
    )

    undone(site, false_claims=[2])

    assert site.remote_chunks(STREAM) == before
    assert error_of(site) is None
    assert site.remote_chunks(STREAM) == before + site.local_chunks(STREAM)


@pytest.mark.parametrize("block", [1, 2**20], ids=["chunk by chunk", "at once"])
def test_of_a_fragment_that_was_cut_in_two_the_part_above_the_cut_is_put_back(
    site: Site, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    write(site, 200)
    site.run(target_size=2**20)
    assert [each.next_offset for each in load(site.context(), STREAM).root.entries] == [200]
    before = site.remote_chunks(STREAM)
    thief = Thief(site)
    thief.claim(2, *((n, n + 10, 1) for n in range(0, 40, 10)), (40, 47, 2))
    thief.forge(40, 90, epoch=2, floor=40)
    shutil.rmtree(site.data_dir / STREAM)
    monkeypatch.setattr("coldstream.usecases.put_back._PIECE", block)

    done = undone(site, false_claims=[2])

    assert (done.plan.offset, done.next_offset, done.left) == (40, 200, [])
    assert site.remote_chunks(STREAM) == before
    entries = load(site.context(), STREAM).root.entries
    assert {each.epoch for each in entries if each.first_offset >= 40} == {done.plan.epoch}


@pytest.mark.parametrize("block", [1, 2**20], ids=["chunk by chunk", "at once"])
def test_of_a_fragment_that_was_cut_in_two_nothing_is_put_back_from_a_damaged_chunk_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    write(site, 200)
    site.run(target_size=2**20)
    (entry,) = load(site.context(), STREAM).root.entries
    path = entry.data_key(STREAM).path("rabbitmq/")
    thief = Thief(site)
    thief.claim(2, *((n, n + 10, 1) for n in range(0, 40, 10)), (40, 47, 2))
    shutil.rmtree(site.data_dir / STREAM)
    data = bytearray(site.store.objects[path])
    index = read_index(site.store, path, read_trailer(site.store, path))
    data[len(HEADER) + index[6].position + 60] ^= 1
    site.store.objects[path] = bytes(data)
    monkeypatch.setattr("coldstream.usecases.put_back._PIECE", block)

    done = undone(site, false_claims=[2])

    (left,) = done.left
    assert ("chunk 60 is damaged", path) == (left.reason, left.key)
    assert done.next_offset == 60


def test_a_stream_that_was_begun_anew_by_a_thief_is_back_as_a_whole(
    site: Site, thief: Thief
) -> None:
    thief.claim(5, (90, 120, 5), (120, 130, 5))
    assert load(site.context(), STREAM).root.first_offset == 90
    thief.forge(90, 120, epoch=5, floor=90)

    done = undone(site, false_claims=[5])

    assert (done.plan.offset, done.next_offset) == (0, 200)
    assert error_of(site) is None
    assert remote_is_local(site)


def test_of_several_false_claims_every_one_is_named(site: Site, thief: Thief) -> None:
    thief.claim(2, *((n, n + 10, 1) for n in range(0, 100, 10)), (100, 107, 2))
    thief.forge(100, 140, epoch=2, floor=100)
    thief.claim(900, *((n, n + 10, 1) for n in range(0, 40, 10)), (40, 47, 900))
    thief.forge(40, 90, epoch=900, floor=40)
    thief.claim(901, *((n, n + 10, 1) for n in range(0, 40, 10)), (40, 47, 900), (47, 48, 901))

    with pytest.raises(InvalidInputError, match="epoch 900 has claimed after"):
        undone(site, false_claims=[2])

    done = undone(site, false_claims=[2, 901, 900])

    assert done.plan.false_claims == (2, 900, 901)
    assert (done.plan.offset, done.next_offset, done.left) == (40, 200, [])
    assert error_of(site) is None
    assert remote_is_local(site)


def test_forged_fragments_under_the_true_claim_are_cut_off_and_never_come_back(
    site: Site, thief: Thief
) -> None:
    thief.forge(200, 240, epoch=1, floor=0)
    write(site, 260)
    assert isinstance(error_of(site), DivergedError)

    done = undone(site, offset=200)

    assert done.next_offset == 200
    thief.forge(200, 230, epoch=1, floor=0)  # late, or by a thief who is still there
    assert error_of(site) is None
    assert remote_is_local(site)


def test_a_false_claim_that_cut_nothing_off_only_fenced_the_writer(
    site: Site, thief: Thief
) -> None:
    thief.claim(7, *((n, n + 10, 1) for n in range(0, 200, 10)), (200, 210, 7))
    write(site, 260)
    assert isinstance(error_of(site), FencedError)

    done = undone(site, false_claims=[7])

    assert (done.cut, done.fragments, done.next_offset) == (None, 0, 200)
    assert error_of(site) is None
    assert remote_is_local(site)


def test_elections_go_on_after_an_undo_and_a_deposed_writer_stays_fenced(
    site: Site, thief: Thief
) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    undone(site, false_claims=[2])
    site.run()
    old = site.data_dir.parent / "old"
    shutil.copytree(site.data_dir / STREAM, old / STREAM)

    write(site, 300, epochs=((1, 0), (2, 250)))
    assert error_of(site) is None
    assert remote_is_local(site)
    site.data_dir, new = old, site.data_dir
    append_chunks(old / STREAM, [build_chunk(200, 1, 1_790_000_100_000, [b"deposed"] * 7)])

    assert isinstance(error_of(site), FencedError)
    site.data_dir = new
    assert remote_is_local(site)


def test_a_second_theft_is_undone_like_the_first(site: Site, thief: Thief) -> None:
    for number in range(3):
        epoch = load(site.context(), STREAM).item.epoch + 1 + number
        thief.claim(epoch, (0, 10, 1), (10, 17, 1 + number))
        thief.forge(10, 40, epoch=epoch, floor=10)
        undone(site, false_claims=[epoch])
        write(site, 220 + 20 * number)
        assert error_of(site) is None
        assert remote_is_local(site)


def test_an_undo_that_dies_before_its_claim_changes_nothing_and_one_after_it_is_finished(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 40, epoch=2, floor=10)
    before = load(site.context(), STREAM).root

    monkeypatch.setattr("coldstream.usecases.undo.amend", interrupt)
    with pytest.raises(KeyboardInterrupt):
        undone(site, false_claims=[2])
    assert load(site.context(), STREAM).root == before
    monkeypatch.undo()
    monkeypatch.setattr("coldstream.usecases.undo.commit_runs", interrupt)
    with pytest.raises(KeyboardInterrupt):
        undone(site, false_claims=[2])

    assert error_of(site) is None
    assert remote_is_local(site)


def test_an_undo_whose_claim_has_landed_without_an_answer_is_finished_and_claims_no_more(
    site: Site, thief: Thief, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    thief.forge(10, 40, epoch=2, floor=10)
    commit, claims = site.catalog.commit, []

    def without_answer(asked: Commit) -> CommitOutcome:
        outcome = commit(asked)
        if asked.claim:
            claims.append(outcome)
            return no_answer("commit")
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(site.catalog, "commit", without_answer)
        done = undone(site, false_claims=[2])

    assert [type(each) for each in claims] == [Landed]
    assert (done.next_offset, done.left) == (200, [])
    assert error_of(site) is None
    assert remote_is_local(site)


def test_a_thief_who_claims_again_meanwhile_stops_the_undo(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    context = site.context()
    plan = plan_undo(context, STREAM, false_claims=[2])
    thief.claim(3, (0, 10, 1), (10, 17, 2), (17, 18, 3))
    before = load(site.context(), STREAM).root

    with pytest.raises(ConflictError, match="epoch 3 has claimed"):
        undo(context, site.store, plan, pause=no_pause, now_ms=1)

    assert load(site.context(), STREAM).root == before


def test_a_lost_fragment_that_is_damaged_is_told_and_the_log_has_it_instead(
    site: Site, thief: Thief
) -> None:
    lost = [e for e in load(site.context(), STREAM).root.entries if e.first_offset >= 40]
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    path = lost[1].data_key(STREAM).path("rabbitmq/")
    site.store.objects[path] = site.store.objects[path][:-3] + b"???"

    done = undone(site, false_claims=[2])

    assert [each.key for each in done.left] == [path]
    assert done.next_offset == lost[1].first_offset
    assert error_of(site) is None
    assert remote_is_local(site)


def test_holes_of_what_was_cut_off_are_put_back_as_holes(site: Site) -> None:
    write(site, 100)
    site.run()
    shutil.rmtree(site.data_dir / STREAM)
    append_chunks(
        site.data_dir / STREAM,
        [build_chunk(140 + 10 * n, 1, 1_790_000_100_000 + n, [b"x"] * 10) for n in range(6)],
    )
    site.run(last_copy=True)
    before = [(e.first_offset, e.next_offset) for e in load(site.context(), STREAM).root.entries]
    Thief(site).claim(2, (0, 10, 1), (10, 17, 2))

    undone(site, false_claims=[2])

    root = load(site.context(), STREAM).root
    assert [(e.first_offset, e.next_offset) for e in root.entries if e.first_offset >= 20] == [
        each for each in before if each[0] >= 20
    ]
    assert [e.first_offset for e in root.entries if e.kind is EntryKind.HOLE] == [100]
    assert error_of(site) is None


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, "name the false claims"),
        ({"false_claims": [2], "offset": 3}, "name the false claims"),
        ({"false_claims": [3]}, "no claim of epoch 3; the newest ones are 1"),
        ({"offset": 201}, "the manifest ends at 200"),
        ({"offset": 195}, "inside chunk 190..200"),
    ],
)
def test_what_cannot_be_undone_is_refused(
    site: Site, thief: Thief, named: dict[str, Any], words: str
) -> None:
    before = load(site.context(), STREAM).root

    with pytest.raises(InvalidInputError, match=words):
        undone(site, **named)

    assert load(site.context(), STREAM).root == before


def test_a_claim_that_knows_nothing_of_the_undo_is_made_again(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    done = undone(site, false_claims=[2])
    context = site.context()
    log = KnownHistory((LocalChunk(0, 10, 1),))
    function = OwnRights(context, no_pause, lambda: 0)

    with pytest.raises(ConflictError, match=f"agents add {done.plan.shift}"):
        Commits(context, function, STREAM, no_pause).claim(
            done.plan.epoch + 9, 0, QueueName(), log, lambda begin, end: None
        )


def test_what_was_undone_cannot_be_undone_again_with_what_came_since(
    site: Site, thief: Thief
) -> None:
    """The second one would cut off what the writer has uploaded since."""
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    undone(site, false_claims=[2])
    write(site, 260)
    site.run()

    with pytest.raises(InvalidInputError, match="undone already"):
        undone(site, false_claims=[2])

    assert remote_is_local(site)


def test_what_epochs_mean_outlives_the_table_and_the_newest_root(site: Site, thief: Thief) -> None:
    thief.claim(2, (0, 10, 1), (10, 17, 2))
    shift = undone(site, false_claims=[2]).plan.shift
    site.run()
    root_key = load(site.context(), STREAM).item.root_key
    data = bytearray(site.store.objects[root_key])
    data[100] ^= 1
    site.store.objects[root_key] = bytes(data)

    rebuild(site.context(), STREAM, branching=64, dry_run=False, accept_less=True)

    assert load(site.context(), STREAM).root.shift == shift
    write(site, 300, epochs=((1, 0), (2, 250)))
    assert error_of(site) is None
    assert remote_is_local(site)


@pytest.mark.parametrize("once", [True, False])
def test_a_forged_twin_of_what_the_agent_uploads_is_told_at_the_next_look_and_undone(
    site: Site, thief: Thief, once: bool
) -> None:
    """Same ids, ends and epochs: no claim can tell, and the commit takes one of the two."""
    write(site, 260)
    agent = site.agent(once=once, flush_ms=0, compare_seconds=30.0)
    forged = twin(200, 210, body=b"forged")
    put = site.store.put

    def first_the_thief(key: str, data: Any, **more: Any) -> None:
        if f"/{200:020d}-" in key and forged.path("rabbitmq/") not in site.store.objects:
            put(forged.path("rabbitmq/"), forged.data, write_id="thief")
            commit_runs(site.context(), STREAM, pause=no_pause)
        put(key, data, **more)

    site.store.put = first_the_thief  # type: ignore[method-assign]
    errors: list[Any] = []

    def report(rows: Any) -> None:
        errors[:] = [each.error for each in rows]
        if errors[0] is not None:
            agent.stop()

    agent.report = report
    agent.run()
    assert isinstance(errors[0], ForgedError)
    assert (errors[0].offset, errors[0].key) == (200, forged.path("rabbitmq/"))
    site.store.put = put  # type: ignore[method-assign]

    undone(site, offset=200)

    assert error_of(site) is None
    assert remote_is_local(site)


def test_what_another_agent_of_the_same_epoch_has_uploaded_is_no_forgery(
    site: Site, thief: Thief
) -> None:
    write(site, 400)
    first = site.agent(once=False, flush_ms=0, compare_seconds=1.0)
    looks: list[int] = []

    def report(rows: Any) -> None:
        looks.append(rows[0].next_offset)
        assert rows[0].error is None
        if len(looks) == 1:
            site.run(target_size=3_000)  # the other one
        if len(looks) > 100 and rows[0].next_offset == 400:
            first.stop()

    first.report = report
    first.run()
    assert remote_is_local(site)


def test_damage_in_s3_is_no_forgery_and_stops_no_agent(site: Site, thief: Thief) -> None:
    write(site, 260)
    other = twin(200, 210, body=b"x")
    data = bytearray(other.data)
    data[60] ^= 1
    site.store.put(other.path("rabbitmq/"), bytes(data), write_id="rot")
    commit_runs(site.context(), STREAM, pause=no_pause)
    notices = Notices()
    strangers = Strangers(site.context(), StreamLog(site.data_dir / STREAM), 0.0, notices)
    strangers.opened(200, 0.0)

    strangers.look(1, 210, 260, 1.0)

    (notice,) = notices
    assert "damaged in S3: a chunk of it does not hold" in notice
    assert other.path("rabbitmq/") in notice
    site.store.objects[other.path("rabbitmq/")] = other.data
    strangers.opened(200, 0.0)
    with pytest.raises(ForgedError):
        strangers.look(1, 210, 260, 2.0)


def test_what_is_compared_in_several_blocks_is_neither_forged_nor_damaged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(site, 200)
    site.run(target_size=2**20)
    assert [each.next_offset for each in load(site.context(), STREAM).root.entries] == [200]
    monkeypatch.setattr("coldstream.agent.stream.strangers._BLOCK", 1)
    notices = Notices()
    strangers = Strangers(site.context(), StreamLog(site.data_dir / STREAM), 0.0, notices)
    strangers.opened(0, 0.0)

    strangers.look(1, 200, 200, 1.0)

    assert list(notices) == []


def test_a_hole_that_a_thief_declared_far_above_is_undone_with_what_he_put_behind_it(
    site: Site, thief: Thief
) -> None:
    """Two requests that brick a stream: a gap up to an offset of the thief's choice, and a
    fragment behind it, without which no hole is committed."""
    far = 2**50
    context = site.context()
    function = OwnRights(context, no_pause, lambda: 0)
    gap = ChainGap(200, far, 1, fragment_follows=False, declared=False, holding=())
    Commits(context, function, STREAM, no_pause).declare(gap, log_first=far)
    thief.forge(far, far + 10, epoch=1, floor=0)
    assert load(site.context(), STREAM).root.next_offset == far + 10
    write(site, 260)

    undone(site, offset=200)

    assert error_of(site) is None
    assert remote_is_local(site)
    assert load(site.context(), STREAM).root.next_offset == 260


@pytest.mark.parametrize(
    ("claims", "shift", "expected"),
    [
        ([1, 500, 1400], 0, None),
        # What lies between was dropped from a long ledger, since it had cut nothing.
        ([1, 500, 2400], 0, None),
        ([1, 500, 5000], 4999, 5000),
        ([1, 500, 5000, 5900, 7100], 4999, 5000),
        ([1, 500, 5000, 9000, 9100], 8990, 9000),
        ([1, 500], 4999, None),
    ],
)
def test_an_undo_is_known_by_its_leap_and_a_shortened_ledger_is_none(
    claims: list[int], shift: int, expected: int | None
) -> None:
    assert _last_undo(claims, shift) == expected
