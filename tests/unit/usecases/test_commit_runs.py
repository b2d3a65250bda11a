from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.invariants import agreement, coverage, fencing
from coldstream.plans.resolve import Candidates, Resolution
from coldstream.ports import NotLanded, Unknown
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece


def commit(remote: Remote, context: Context | None = None, **settings: Any) -> CommitReport:
    report = commit_runs(context or remote.context, STREAM, pause=no_pause, **settings)
    loaded = load(remote.new_context(), STREAM)
    assert agreement(loaded.item, loaded.root) == []
    assert coverage(loaded.root) == []
    assert fencing(loaded.root) == []
    return report


@pytest.fixture
def remote() -> Remote:
    return Remote().claimed()


def test_a_run_is_appended_in_one_commit(remote: Remote) -> None:
    fragments = chain(5)
    remote.upload(*fragments)

    report = commit(remote)

    assert (report.commits, report.fragments, report.next_offset) == (1, 5, 50)
    assert report.bytes == sum(len(each.data) for each in fragments)
    assert report.version == 2
    assert remote.ranges() == [
        (f.key.first_offset, f.key.next_offset, f.key.uid) for f in fragments
    ]


def test_nothing_to_append_commits_nothing(remote: Remote) -> None:
    report = commit(remote)

    assert (report.commits, report.version, report.next_offset) == (0, 1, 0)
    assert remote.store.calls["put"] == 0


def test_a_run_with_a_gap_is_committed_up_to_the_gap(remote: Remote) -> None:
    fragments = chain(5)
    remote.upload(*fragments[:2], *fragments[3:])

    assert commit(remote).next_offset == 20

    remote.upload(fragments[2])
    assert commit(remote).next_offset == 50


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_commit_costs_what_the_design_says(remote: Remote, count: int) -> None:
    remote.upload(*chain(count))
    remote.forget()

    commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.catalog.calls == {"get": 1, "table_id": 1, "commit": 1}
    assert remote.store.calls == {"list": 1, "get_suffix": count, "put": 1}


def test_a_cold_start_costs_one_get_of_the_root_more(remote: Remote) -> None:
    remote.upload(*chain(3))
    remote.forget()

    commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert remote.store.calls == {"get_all": 1, "list": 1, "get_suffix": 3, "put": 1}


def test_looking_at_a_stream_without_news_costs_one_read_and_one_list(remote: Remote) -> None:
    remote.forget()

    commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.catalog.calls == {"get": 1, "table_id": 1}
    assert remote.store.calls == {"list": 1}


# Page boundaries.


def test_a_run_of_exactly_one_page_is_found_whole(remote: Remote) -> None:
    remote.upload(*chain(1000, size=1))

    assert commit(remote, limit=5000).next_offset == 1000


@pytest.mark.parametrize("count", [999, 1001, 2001])
def test_a_run_over_several_pages_is_found_whole(remote: Remote, count: int) -> None:
    remote.upload(*chain(count, size=1))

    report = commit(remote, limit=5000)

    assert (report.commits, report.next_offset) == (1, count)


def test_a_run_is_found_behind_more_than_a_page_of_uploads_of_one_range(remote: Remote) -> None:
    remote.upload(*(piece(0, 10, uid=uid) for uid in range(1, 1002)), piece(10, 20))
    remote.forget()

    assert commit(remote).next_offset == 20
    assert remote.store.calls["list"] == 2


def test_the_better_fragment_behind_a_page_boundary_is_not_missed(remote: Remote) -> None:
    # 1000 keys [0, 1), .. and the one that reaches furthest sorts behind all of them.
    remote.upload(*(piece(0, next_offset) for next_offset in range(1, 1001)), piece(0, 2000, uid=1))

    assert commit(remote).next_offset == 2000


def test_a_page_that_ends_right_where_the_run_ends_is_not_the_last(remote: Remote) -> None:
    # 999 uploads of an epoch that never claimed begin where the run ends and fill the page.
    strangers = [piece(10, 11 + n, epoch=9, records_per_chunk=1000) for n in range(999)]
    remote.upload(piece(0, 10), *strangers, piece(10, 2000, records_per_chunk=1000))

    assert commit(remote).next_offset == 2000


def test_one_list_is_enough_when_the_page_ends_beyond_the_run(remote: Remote) -> None:
    remote.upload(piece(0, 10), *chain(1500, size=1, start=500))
    remote.forget()

    assert commit(remote).next_offset == 10
    assert remote.store.calls["list"] == 1


def test_a_page_of_foreign_objects_hides_no_fragment(remote: Remote) -> None:
    data = f"{PREFIX}stream/{STREAM}/data/"
    for number in range(1100):
        remote.memory.put(f"{data}00000000000000000000.{number}", b"?", write_id="w")
    remote.upload(piece(0, 10))

    assert commit(remote).next_offset == 10


def test_a_run_longer_than_the_limit_takes_several_commits(remote: Remote) -> None:
    remote.upload(*chain(25))

    report = commit(remote, limit=10)

    assert (report.commits, report.fragments, report.next_offset) == (3, 25, 250)
    assert report.version == 4


def test_a_run_of_exactly_the_limit_takes_one_commit(remote: Remote) -> None:
    remote.upload(*chain(10))

    assert commit(remote, limit=10).commits == 1


# Fragments that must not enter.


def lies() -> dict[str, Any]:
    good = piece(10, 20)
    return {
        "garbage": replace(good, data=b"garbage" * 100),
        "empty": replace(good, data=b""),
        "truncated": replace(good, data=good.data[:-1]),
        "cut in front": replace(good, data=good.data[1:]),
        "longer": replace(good, data=b"x" + good.data),
        "trailer of another range": replace(good, data=piece(20, 30).data),
        "lies about records": good.lying(records=9),
        "lies about size": good.lying(data_size=good.trailer.data_size + 8),
        "lies about the floor": good.lying(floor=5),
        "chunk of a newer epoch": good.lying(last_chunk_epoch=2),
        "flipped": replace(
            good, data=good.data[:-20] + bytes([good.data[-20] ^ 1]) + good.data[-19:]
        ),
    }


@pytest.mark.parametrize("lie", lies())
def test_a_bad_fragment_is_refused_by_name_and_the_run_ends_before_it(
    remote: Remote, lie: str
) -> None:
    bad = lies()[lie]
    remote.upload(piece(0, 10), bad, piece(20, 30))
    before = remote.tampered()

    report = commit(remote)

    assert report.next_offset == 10
    (refused,) = report.refused
    for part in (STREAM, "offset 10", bad.path(PREFIX)):
        assert part in str(refused)
    assert before.items() <= remote.tampered().items(), "nothing is deleted or changed"


@pytest.mark.parametrize("lie", lies())
def test_another_upload_of_the_same_range_replaces_a_bad_one(remote: Remote, lie: str) -> None:
    bad, good = lies()[lie], piece(10, 20, uid=2**63)
    remote.upload(piece(0, 10), bad, good, piece(20, 30))

    report = commit(remote)

    assert [uid for *_, uid in remote.ranges()][1] == good.key.uid
    assert report.next_offset == 30
    assert [each.key for each in report.refused] == [bad.path(PREFIX)]


def test_a_detour_around_a_bad_fragment_is_taken(remote: Remote) -> None:
    bad = replace(piece(0, 30), data=b"bad")
    remote.upload(bad, piece(0, 15), piece(15, 20), piece(20, 30))

    report = commit(remote)

    assert [(a, b) for a, b, _ in remote.ranges()] == [(0, 15), (15, 20), (20, 30)]
    assert len(report.refused) == 1


def test_a_refused_fragment_costs_no_second_get_of_the_others(remote: Remote) -> None:
    fragments = chain(30)
    remote.upload(*fragments)
    bad = [replace(piece(n * 10, n * 10 + 10, uid=1), data=b"bad") for n in range(10)]
    remote.upload(*bad)
    remote.forget()

    report = commit(remote, remote.context)

    assert (report.next_offset, len(report.refused)) == (300, 10)
    assert remote.store.calls["get_suffix"] == 40


def test_all_uploads_of_a_range_bad_is_the_end_of_the_run(remote: Remote) -> None:
    remote.upload(*(replace(piece(0, 10, uid=uid), data=b"x" * uid) for uid in range(1, 20)))

    report = commit(remote)

    assert (report.commits, report.next_offset, len(report.refused)) == (0, 0, 19)


def test_chunk_epochs_must_not_fall_from_one_fragment_to_the_next() -> None:
    remote = Remote().claimed(epoch=7)
    remote.upload(
        piece(0, 10, epoch=7, chunk_epochs=[5]),
        piece(10, 20, epoch=7, chunk_epochs=[4]),
        piece(20, 30, epoch=7, chunk_epochs=[5]),
    )

    report = commit(remote)

    assert report.next_offset == 10
    assert "fall from 5 to 4" in str(report.refused[0])


def test_chunk_epochs_must_not_fall_behind_the_manifests_last_chunk() -> None:
    remote = Remote().claimed(epoch=7)
    remote.upload(piece(0, 20, epoch=7, chunk_epochs=[5, 6]))
    commit(remote)
    remote.upload(piece(20, 30, epoch=7, chunk_epochs=[5]))

    # A commit later, and in another process.
    report = commit(remote, remote.new_context())

    assert report.next_offset == 20
    assert "fall from 6 to 5" in str(report.refused[0])


def test_a_fragment_that_vanishes_after_it_was_listed_is_left_out(remote: Remote) -> None:
    (path, *_) = remote.upload(piece(0, 10, uid=1), piece(0, 10, uid=2))
    remote.store.before["get_suffix"] = lambda *_: remote.memory.objects.pop(path)

    report = commit(remote)

    assert remote.ranges() == [(0, 10, 2)]
    assert "vanished" in str(report.refused[0])


def test_an_outage_while_trailers_are_read_changes_nothing(remote: Remote) -> None:
    remote.upload(*chain(3))

    def outage(*_: object) -> None:
        raise UnavailableError("down")

    remote.store.before["get_suffix"] = outage
    with pytest.raises(UnavailableError):
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.ranges() == []
    assert commit(remote).next_offset == 30


# Conflicts, and answers that nobody can know.


def test_a_conflict_leads_to_a_new_plan_from_the_new_root(remote: Remote) -> None:
    fragments = chain(4)
    remote.upload(*fragments[:2])
    other = remote.new_context()

    def race(*_: object) -> None:
        remote.upload(*fragments[2:])
        commit_runs(other, STREAM, pause=no_pause)

    remote.catalog.before["commit"] = race
    report = commit(remote)

    assert remote.ranges() == [
        (f.key.first_offset, f.key.next_offset, f.key.uid) for f in fragments
    ]
    assert (report.commits, report.conflicts, report.next_offset) == (0, 1, 40)


def test_a_commit_that_landed_with_an_unknown_answer_is_not_applied_again(remote: Remote) -> None:
    remote.upload(*chain(3))
    remote.catalog.after["commit"] = lambda answer: Unknown(answer.item)

    report = commit(remote)

    assert (report.commits, report.conflicts) == (0, 1)
    assert (report.version, report.next_offset) == (2, 30)
    assert remote.catalog.calls["commit"] == 1
    assert len(remote.ranges()) == 3


def test_a_commit_that_did_not_land_is_planned_again(remote: Remote) -> None:
    remote.upload(*chain(3))
    remote.forget()
    real = remote.items.commit

    def refuse_once(given: Any) -> Any:
        remote.items.commit = real  # type: ignore[method-assign]
        return NotLanded(remote.items.get(given.stream))

    remote.items.commit = refuse_once  # type: ignore[method-assign]
    report = commit(remote)

    assert (report.commits, report.conflicts, report.next_offset) == (1, 1, 30)
    assert remote.store.calls["list"] == 2, "the run was resolved again"
    assert remote.store.calls["put"] == 2, "under a new uid"


def test_a_root_that_may_have_landed_is_never_deleted(remote: Remote) -> None:
    remote.upload(*chain(3))
    before = set(remote.tampered())
    remote.catalog.after["commit"] = lambda answer: Unknown(answer.item)

    commit(remote)

    assert before < set(remote.tampered())
    assert not [name for name in remote.store.calls if "delete" in name]


def test_endless_conflicts_end_in_an_error_and_the_pauses_are_counted(remote: Remote) -> None:
    remote.upload(*chain(1))
    pauses: list[int] = []
    remote.items.commit = lambda given: Unknown(None)  # type: ignore[method-assign]

    with pytest.raises(ConflictError) as caught:
        commit_runs(remote.context, STREAM, pause=pauses.append, attempts=4)

    assert caught.value.stream == STREAM
    assert pauses == [1, 2, 3]


def test_conflicts_in_a_row_are_counted_from_the_last_commit_that_landed(remote: Remote) -> None:
    remote.upload(*chain(6))
    real, calls = remote.items.commit, [0]

    def every_second(given: Any) -> Any:
        calls[0] += 1
        return real(given) if calls[0] % 2 == 0 else NotLanded(remote.items.get(given.stream))

    remote.items.commit = every_second  # type: ignore[method-assign]

    report = commit_runs(remote.context, STREAM, pause=no_pause, attempts=2, limit=1)

    assert (report.commits, report.conflicts, report.next_offset) == (6, 6, 60)


def test_a_root_whose_put_is_unknown_is_not_committed(remote: Remote) -> None:
    remote.upload(*chain(1))

    def unknown(*_: object) -> None:
        raise UnknownOutcomeError("no answer")

    remote.store.before["put"] = unknown
    with pytest.raises(UnknownOutcomeError):
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.ranges() == []


def test_every_root_lies_under_a_key_of_its_own_and_stays(remote: Remote) -> None:
    for fragment in chain(4):
        remote.upload(fragment)
        commit(remote)

    roots = [key for key in remote.tampered() if "/metadata/" in key]
    assert len(roots) == 5


# Streams that take no commits.


def test_an_unknown_stream_is_not_found_and_nothing_is_written() -> None:
    remote = Remote()
    remote.upload(piece(0, 10))
    before = remote.tampered()

    with pytest.raises(NotFoundError) as caught:
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert STREAM in str(caught.value)
    assert remote.tampered() == before
    assert remote.items.items == {}


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.REBUILDING])
def test_a_stream_that_is_not_live_takes_no_commit(remote: Remote, state: StreamState) -> None:
    remote.upload(piece(0, 10))
    remote.items.items[STREAM] = replace(remote.items.items[STREAM], state=state)
    before = remote.tampered()

    with pytest.raises(ConflictError, match=state):
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.tampered() == before


def test_history_3_an_item_of_a_restored_table_takes_no_commit(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    remote.items._table_id = "restored"
    before = remote.tampered()

    with pytest.raises(ConflictError, match="restore"):
        commit_runs(remote.context, STREAM, pause=no_pause)

    assert remote.tampered() == before


def root_key(remote: Remote) -> str:
    item = remote.items.get(STREAM)
    assert item is not None
    return item.root_key


def test_a_missing_root_stops_the_stream_and_is_named(remote: Remote) -> None:
    key = root_key(remote)
    del remote.memory.objects[key]

    with pytest.raises(NotFoundError) as caught:
        commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert (caught.value.stream, caught.value.key) == (STREAM, key)
    assert caught.value.__cause__ is not caught.value


def test_a_damaged_root_stops_the_stream_and_is_named(remote: Remote) -> None:
    key = root_key(remote)
    remote.memory.objects[key] = remote.memory.objects[key][:-1]

    with pytest.raises(CorruptDataError) as caught:
        commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert (caught.value.stream, caught.value.key) == (STREAM, key)
    assert caught.value.__cause__ is not caught.value


def test_a_root_that_is_not_the_one_the_item_describes_is_refused(remote: Remote) -> None:
    remote.upload(piece(0, 10))
    first = root_key(remote)
    old = remote.memory.objects[first]
    commit(remote)
    remote.memory.objects[root_key(remote)] = old

    with pytest.raises(CorruptDataError) as caught:
        commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert caught.value.stream == STREAM


def test_a_manifest_far_behind_lists_no_more_than_one_commit_takes(remote: Remote) -> None:
    remote.upload(*chain(5_000))

    commit_runs(remote.new_context(), STREAM, pause=no_pause, time_left=lambda: False)

    assert remote.root().fragments == 500
    assert remote.store.calls["list"] == 1


def test_many_bad_uploads_of_one_range_are_looked_at_together(remote: Remote) -> None:
    damaged = b"x" * len(piece(0, 10).data)
    remote.upload(*(replace(piece(0, 10, uid=n + 1), data=damaged) for n in range(300)))
    remote.upload(piece(0, 10, uid=2**63))
    resolved: list[int] = []
    original = Candidates.resolved

    def counted(candidates: Candidates) -> Resolution:
        resolved.append(1)
        return original(candidates)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Candidates, "resolved", counted)
        report = commit_runs(remote.new_context(), STREAM, pause=no_pause)

    assert (report.next_offset, len(report.refused)) == (10, 300)
    assert 0 < len(resolved) < 10
