"""What another node's agent may hold open is waited for, however the waiting comes about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted, Known
from coldstream.agent.broker.members import NoStreamError
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.held import Held
from coldstream.errors import LostRangeError, NotFoundError, UnavailableError
from coldstream.usecases.commit_runs import commit_runs

from .conftest import Site, no_pause
from .test_holes import STREAM, Others, Steps, claimed, holes, put, tree, write

FLUSH, TAKEOVER = 10, 20


class StandsBy(AllCommitted):
    """The stream's writer is on another node."""

    def known(self, stream: str) -> Known:
        del stream
        return Known(writer=False)


def side_by_side(*agents: Steps, seconds: range, then: Callable[[int], None] | None = None) -> None:
    """Let agents of one stream look, upload and commit; one that is ahead waits for the clock.

    Args:
        agents: look in this order.
        seconds: at which they look.
        then: is called with each of them, before what was uploaded is committed.
    """
    site = agents[0].site
    for now in seconds:
        for steps in agents:
            if now > steps.now:
                for job in steps.step(now - steps.now):
                    steps.upload(job)
        if then is not None:
            then(now)
        with suppress(NotFoundError):  # nobody has claimed it yet
            commit_runs(site.context(), STREAM, pause=no_pause)


def restarted(site: Site, members: Any = None, **more: Any) -> Steps:
    """An agent that has lost what it held open: its log begins at 150, and 100 are published."""
    return Steps(
        site, members=members or Others(150), flush_ms=1000 * FLUSH, takeover_seconds=TAKEOVER,
        rescan_seconds=5, **more,
    )  # fmt: skip


def test_one_that_takes_over_as_late_as_it_may_has_the_time_to_upload(
    site: Site, tmp_path: Path
) -> None:
    """It sees what is new a moment before the writer's agent publishes it and dies, so each of its
    two looks at the manifest comes as late as it can."""
    claimed(site, 90)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 90)
    stands_by = Steps(other, committed=StandsBy(), flush_ms=1000 * FLUSH, takeover_seconds=TAKEOVER)
    for seconds in (1, FLUSH + TAKEOVER):
        assert stands_by.step(seconds) == []
    for path in (other.data_dir / STREAM).iterdir():
        path.unlink()
    write(other, 200)
    assert stands_by.step(1) == []
    put(site, 90, 100)
    commit_runs(site.context(), STREAM, pause=no_pause)
    write(site, 50, start_offset=150)
    steps = restarted(site)
    steps.now = stands_by.now

    jobs: list[Any] = []
    while not jobs:
        jobs = stands_by.step(1)
        steps.step(1)
        assert steps.now < 200
    for _ in range(5):  # so long do the uploads take
        steps.step(1)
    for job in jobs:
        stands_by.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)
    steps.step(1)

    assert holes(site) == []
    assert tree(site)[0][1] > 100


@dataclass
class Away:
    """A store and a table that may not answer."""

    there: Any
    away: bool = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise UnavailableError("nobody answers")
        return getattr(self.there, name)


def away(site: Site) -> Callable[[bool], None]:
    store, catalog = Away(site.store), Away(site.catalog)
    site.store, site.catalog = store, catalog  # type: ignore[assignment]

    def answers(yes: bool) -> None:
        store.away = catalog.away = not yes

    return answers


def test_the_time_in_which_the_store_answers_nobody_is_not_given_to_the_other_agent(
    site: Site,
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    answers = away(site)
    steps = restarted(site)

    steps.go_on(3, 10)
    answers(False)
    for _ in range(100):
        steps.step(10)
    answers(True)
    steps.go_on(1, 10)

    assert isinstance(steps.follower.progress.error, LostRangeError)
    assert holes(site) == []
    steps.go_on(20, 10)
    assert len(holes(site)) == 1


def test_looks_that_are_far_apart_wait_longer_and_not_for_ever(site: Site) -> None:
    """Ten thousand streams may keep this one waiting for minutes each time."""
    claimed(site, 100)
    write(site, 50, start_offset=150)
    steps = restarted(site)

    steps.go_on(9, 1000)

    assert len(holes(site)) == 1


def test_a_member_that_is_taken_away_waits_for_what_another_nodes_agent_holds_too(
    site: Site,
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    steps = restarted(site)
    steps.go_on(1, 1)
    steps.follower.vanish(steps.now, 0)

    steps.go_on(6, 10)
    assert isinstance(steps.follower.progress.error, LostRangeError)
    assert holes(site) == []
    while not holes(site):
        assert not steps.follower.over(steps.now)
        steps.go_on(1, 10)
    assert tree(site)[-1][1] == 200


def test_a_member_that_is_taken_away_is_done_before_it_is_given_up(site: Site) -> None:
    """However long the operator lets a take-over take."""
    claimed(site, 100)
    write(site, 50, start_offset=150)
    steps = Steps(site, members=Others(150), takeover_seconds=3600, rescan_seconds=5)
    steps.go_on(1, 1)
    steps.follower.vanish(steps.now, 0)

    while not holes(site):
        assert not steps.follower.over(steps.now)
        steps.go_on(1, 10)
    assert tree(site)[-1][1] == 200


def test_a_log_that_shows_nothing_common_waits_for_one_that_another_nodes_agent_holds(
    site: Site, tmp_path: Path
) -> None:
    """By the short log all of the manifest was another history, and went into the quarantine."""
    claimed(site, 200)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 250, epochs=((1, 0), (2, 140)))
    write(site, 100, start_offset=150, epochs=((2, 150),))
    steps, holder = restarted(site), Steps(other)

    steps.step()
    error = steps.follower.progress.error
    assert isinstance(error, LostRangeError)
    assert "shows nothing that could be compared" in str(error)
    assert "is waited for" in str(error)
    for _ in range(8):
        for job in holder.step(100.0):
            holder.upload(job)
        commit_runs(site.context(), STREAM, pause=no_pause)
    steps.go_on(2)

    assert steps.follower.progress.error is None
    assert tree(site) == [(0, 250, "FRAGMENT")]


def test_a_gap_seen_before_a_deletion_is_seen_anew_once_the_store_answers(site: Site) -> None:
    """The stream is deleted and the store away for long: an agent that holds the range has had no
    time to upload it."""

    class Deleted(Others):
        gone = False

        def earliest(self, stream: str) -> int | None:
            if self.gone:
                raise NoStreamError("no such stream", stream=stream)
            return super().earliest(stream)

    claimed(site, 100)
    write(site, 50, start_offset=150)
    members = Deleted(150)
    answers = away(site)
    steps = restarted(site, members)
    steps.go_on(3, 10)
    steps.follower.vanish(steps.now, 0)
    members.gone = True
    answers(False)
    for _ in range(40):
        steps.step(10)
    answers(True)
    steps.go_on(1, 10)

    assert isinstance(steps.follower.progress.error, NoStreamError)
    assert holes(site) == []
    steps.go_on(40, 10)
    assert len(holes(site)) == 1


def test_a_first_claim_waits_for_what_another_nodes_agent_holds(site: Site, tmp_path: Path) -> None:
    """The store was away since the stream was made. By the short log the stream would begin at 150,
    and no hole would tell of what was confirmed below."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 200)
    write(site, 50, start_offset=150)
    steps, holder = restarted(site), Steps(other)

    steps.step()
    assert STREAM not in site.catalog.items
    assert "offsets 0 to 149 are in no member's log" in str(steps.follower.progress.error)
    for _ in range(8):
        for job in holder.step(1.0):
            holder.upload(job)
        commit_runs(site.context(), STREAM, pause=no_pause)
    steps.go_on(2)

    assert steps.follower.progress.error is None
    assert tree(site) == [(0, 200, "FRAGMENT")]


@pytest.mark.parametrize("later", [-100, -45, -12, -1, 0, 1, 12, 45, 100])
def test_a_first_claim_is_of_the_agent_that_has_most(
    site: Site, tmp_path: Path, later: int
) -> None:
    """The one beside the writer has less, and begins some seconds later or earlier. Until the one
    that stands by has begun, its broker's log has what its agent holds from then on."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130)
    write(site, 50, start_offset=150)
    has_less = restarted(site, members := Others(130))
    has_more = restarted(other, Others(150), committed=StandsBy())
    has_less.now, has_more.now = max(0, later), max(0, -later)

    def removed(now: int) -> None:
        if now > -later:
            members.first = 150

    side_by_side(has_less, has_more, seconds=range(1, 300), then=removed)

    assert tree(site) == [(130, 200, "FRAGMENT")]
    assert has_less.follower.progress.error is has_more.follower.progress.error is None


def test_who_has_least_waits_longest_for_a_first_claim_also_where_the_store_was_away(
    site: Site, tmp_path: Path
) -> None:
    """Both have run for an hour, and their brokers' logs begin at the same offset meanwhile."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130)
    write(site, 50, start_offset=150)
    has_less = restarted(site, Others(150))
    has_more = restarted(other, Others(150), committed=StandsBy())
    has_less.now = has_more.now = 3600
    has_more.now += 8

    side_by_side(has_less, has_more, seconds=range(3601, 3900))

    assert tree(site) == [(130, 200, "FRAGMENT")]


def test_of_two_that_hold_more_than_the_logs_have_the_one_with_most_is_first(
    site: Site, tmp_path: Path
) -> None:
    """The store comes back for both, a few seconds sooner for the one that has less."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 90, start_offset=110)
    write(site, 70, start_offset=130)
    has_less, has_more = (
        Steps(each, members=Others(150), committed=StandsBy()) for each in (site, other)
    )
    has_more.now = 8

    side_by_side(has_less, has_more, seconds=range(1, 300))

    assert tree(site)[0][0] == 110
    assert tree(site)[-1][1] == 200


def test_one_that_stands_by_leaves_a_stream_alone_once_another_has_claimed_it_first(
    site: Site, tmp_path: Path
) -> None:
    """At an installation all logs begin above 0, and no two agents need to upload the same."""
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    for each in (site, other):
        write(each, 50, start_offset=150)
    writer = restarted(site, Others(150))
    stands_by = restarted(other, Others(150), committed=StandsBy())
    stands_by.now = 5

    side_by_side(writer, stands_by, seconds=range(1, 300))

    assert tree(site) == [(150, 200, "FRAGMENT")]
    assert stands_by.follower.progress.fragments == 0
    assert stands_by.follower.progress.error is None
    assert stands_by.follower.progress.notices == []


def test_one_that_stands_by_claims_first_and_uploads_all_where_the_writer_has_no_agent(
    site: Site,
) -> None:
    write(site, 400, start_offset=150)
    stands_by = restarted(site, Others(150), committed=StandsBy())

    side_by_side(stands_by, seconds=range(1, 600))

    assert len(site.store.objects) > 4
    assert tree(site)[0][0] == 150
    assert tree(site)[-1][1] == 550


def test_one_that_stands_by_asks_the_catalog_nothing_while_its_log_has_the_beginning(
    site: Site,
) -> None:
    write(site, 50)
    answers = away(site)
    stands_by = restarted(site, Others(0), committed=StandsBy())
    answers(False)

    stands_by.step(FLUSH)

    assert stands_by.follower.progress.error is None


def test_what_a_first_claim_leaves_out_is_told_by_the_agent_that_has_it(
    site: Site, tmp_path: Path
) -> None:
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130)
    write(site, 50, start_offset=150)
    has_more = restarted(other, Others(150), committed=StandsBy())
    has_more.step()
    lone = restarted(site, Others(None, here_only=True))

    side_by_side(lone, has_more, seconds=range(2, 300))

    assert tree(site) == [(150, 200, "FRAGMENT")]
    (told,) = [each for each in has_more.follower.progress.notices if "left out" in each]
    assert "offsets 130 to 149" in told
    assert STREAM in told


def test_what_retention_takes_before_the_first_claim_is_told_too(site: Site) -> None:
    """Nothing holds it: no file could be opened, or what may be held is full."""
    write(site, 70, start_offset=130)
    steps = restarted(site, members := Others(130))
    steps.step()
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    members.first = 150
    write(site, 50, start_offset=150)
    side_by_side(steps, seconds=range(2, 200))

    assert tree(site) == [(150, 200, "FRAGMENT")]
    (told,) = [each for each in steps.follower.progress.notices if "left out" in each]
    assert "offsets 130 to 149" in told


def test_what_is_left_out_is_what_this_node_has_had_and_nobody_is_sent_where_it_is_not(
    site: Site,
) -> None:
    """A node that was away has what came meanwhile in no log, and its log is made anew above."""
    write(site, 20, start_offset=100)
    steps = restarted(site, members := Others(100))
    steps.step()
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    members.first = 150
    write(site, 50, start_offset=150)

    side_by_side(steps, seconds=range(2, 200))

    assert tree(site) == [(150, 200, "FRAGMENT")]
    left_out, begins = steps.follower.progress.notices
    assert "offsets 100 to 119, which this node has had" in left_out
    assert "no member's log has them any more" in left_out
    assert "from a broker" not in left_out
    assert "offsets 0 to 149" in begins


def test_an_agent_that_nobody_can_ask_for_does_not_say_that_no_member_has_it(site: Site) -> None:
    write(site, 50, start_offset=150)

    (told,) = site.run(last_copy=True)[STREAM].notices

    assert "offsets 0 to 149" in told
    assert "no member's log" not in told


def test_the_first_claim_of_a_stream_says_once_that_its_beginning_is_in_no_tier(
    site: Site,
) -> None:
    """Retention was faster than the first look: no hole tells of it, and nothing else did."""
    write(site, 50, start_offset=150)
    steps = restarted(site, Others(150))
    side_by_side(steps, seconds=range(1, 200))
    write(site, 20, start_offset=200)
    side_by_side(steps, seconds=range(200, 300))
    again = restarted(site, Others(150))
    again.now = 300
    side_by_side(again, seconds=range(301, 350))

    assert tree(site)[0][0] == 150
    (told,) = steps.follower.progress.notices
    assert "from offset 150 on" in told
    assert "no member's log has them any more" in told
    assert again.follower.progress.notices == []


def test_of_a_stream_that_is_claimed_from_its_beginning_nothing_is_told(site: Site) -> None:
    write(site, 50)

    assert site.run()[STREAM].notices == []


def test_a_first_claim_waits_once_however_retention_moves_on(site: Site) -> None:
    write(site, 50, start_offset=150)
    members = Others(150)
    steps = restarted(site, members)

    while STREAM not in site.catalog.items:
        steps.step(10)
        assert steps.now < 200
        for path in (site.data_dir / STREAM).iterdir():
            path.unlink()
        members.first = int(steps.now) // 10 * 10 + 160
        write(site, 50, start_offset=members.first)

    assert site.catalog.items[STREAM].first_offset > 150


def test_the_only_member_waits_for_nobody(site: Site) -> None:
    """Neither with a first claim nor before a hole."""
    write(site, 50, start_offset=150)
    steps = restarted(site, Others(150, here_only=True))

    for job in steps.step():
        steps.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 50, start_offset=300)
    steps = restarted(site, Others(300, here_only=True))
    steps.step()

    assert steps.follower.progress.error is None
    assert len(holes(site)) == 1


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("later", [-200, -100, -45, -12, 0, 12, 45, 100, 200])
def test_of_agents_that_have_each_lost_some_none_declares_lost_what_another_holds(
    site: Site, tmp_path: Path, later: int, epoch: int
) -> None:
    """All were down while retention won. The one beside the writer has less than the one that
    stands by, and begins some seconds later or earlier; of a claimed epoch, or of a new one."""
    claimed(site, 100)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130, epochs=((epoch, 130),))
    write(site, 50, start_offset=150, epochs=((epoch, 150),))
    has_less = restarted(site, members := Others(130))
    has_more = restarted(other, committed=StandsBy())
    has_less.now, has_more.now = max(0, later), max(0, -later)

    def removed(now: int) -> None:
        if now > -later:
            members.first = 150  # what its broker removes now, its agent holds

    side_by_side(has_less, has_more, seconds=range(5, 700, 5), then=removed)

    assert tree(site)[:2] == [(0, 100, "FRAGMENT"), (100, 130, "HOLE")]
    assert [each[2] for each in tree(site)[2:]] == ["FRAGMENT"] * len(tree(site)[2:])
    assert tree(site)[-1][1] == 200


def test_a_stream_that_is_always_uploading_behind_a_gap_ends_the_gap_in_time(site: Site) -> None:
    """Each upload takes longer than the next one's data, so one is always under way: the gap was
    never looked at again, and the manifest stood still for ever."""
    claimed(site, 100)
    write(site, 50, start_offset=150)
    steps = Steps(
        site, members=Others(150), flush_ms=1000, takeover_seconds=TAKEOVER, rescan_seconds=5
    )
    flying: list[tuple[int, Any]] = []
    for now in range(1, 200):
        if now % 10 == 0:
            for path in (site.data_dir / STREAM).iterdir():
                path.unlink()
            write(site, 50 + now, start_offset=150)
        flying += [(now + 12, job) for job in steps.step(1)]
        while flying and flying[0][0] <= now:
            steps.upload(flying.pop(0)[1])
        commit_runs(site.context(), STREAM, pause=no_pause)

    assert len(holes(site)) == 1
    assert tree(site)[:2] == [(0, 100, "FRAGMENT"), (100, 150, "HOLE")]
    assert tree(site)[-1][1] > 300
    assert steps.follower.progress.error is None


@pytest.mark.parametrize("later", [0, 12, 24, 60])
def test_a_gap_before_what_an_older_epoch_has_uploaded_waits_for_one_that_cannot_claim_yet(
    site: Site, tmp_path: Path, later: int
) -> None:
    """Under epoch 1 an agent uploaded behind its gap and died. The writer's agent of epoch 2 takes
    that in by a hole before it claims; one that stands by has more, and waits for a claim, too."""
    claimed(site, 100)
    put(site, 150, 160)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130, epochs=((1, 130), (2, 170)))
    write(site, 40, start_offset=160, epochs=((1, 160), (2, 170)))
    has_less = restarted(site, Others(160))
    has_more = restarted(other, Others(160), committed=StandsBy())
    has_less.now = later

    side_by_side(has_less, has_more, seconds=range(1, 400))

    assert tree(site)[:2] == [(0, 100, "FRAGMENT"), (100, 130, "HOLE")]
    assert tree(site)[-1][1] == 200


@pytest.mark.parametrize("seconds", [26, 31, 36])
def test_what_a_members_log_had_a_moment_ago_its_agent_has_all_the_time_to_upload(
    site: Site, tmp_path: Path, seconds: int
) -> None:
    """The time counted from the last look at which the member had it, half a minute too early."""
    claimed(site, 100)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 70, start_offset=130)
    write(site, 50, start_offset=150)
    more = {"flush_ms": 2000, "takeover_seconds": 5, "rescan_seconds": 37}
    has_less = Steps(site, members=(members := Others(130)), **more)
    has_more = Steps(other, members=Others(150), committed=StandsBy(), **more)
    has_more.now = seconds

    def removed(now: int) -> None:
        if now > seconds:
            members.first = 150

    side_by_side(has_less, has_more, seconds=range(1, 300), then=removed)

    assert tree(site)[:2] == [(0, 100, "FRAGMENT"), (100, 130, "HOLE")]
    assert tree(site)[-1][1] == 200


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("held", [False, True])
def test_one_whose_broker_has_made_its_log_anew_waits_for_what_another_holds(
    site: Site, tmp_path: Path, epoch: int, *, held: bool
) -> None:
    """A node was down while retention won on the others, and its replica begins where they do. Its
    agent has been there all the time, and had all that was published."""
    write(site, 100)
    keeps = Held(DISK, budget=2**30, most=100) if held else None
    steps = restarted(site, members := Others(0), held=keeps)
    side_by_side(steps, seconds=range(1, 30))
    assert tree(site)[-1][1] == 100
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 200, epochs=((1, 0), (epoch, 120)))
    stands_by = restarted(other, Others(150), committed=StandsBy())
    stands_by.now, members.first = 30, 150
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 50, start_offset=150, epochs=((epoch, 150),))

    side_by_side(steps, stands_by, seconds=range(31, 300))

    assert holes(site) == []
    assert tree(site)[-1][1] == 200


def test_what_an_agent_held_until_its_broker_made_the_log_anew_says_nothing_of_what_it_lacks(
    site: Site, tmp_path: Path
) -> None:
    """It uploads what it holds, and then its log seemed to have joined the manifest; but between
    what it held and what the broker has now lies what only another one holds."""
    keeps = Held(DISK, budget=2**30, most=100)
    write(site, 100)
    steps = restarted(site, members := Others(0), held=keeps)
    side_by_side(steps, seconds=range(1, 30))
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 120)
    assert steps.step(most=0) == []  # the link is slow
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 50, start_offset=150)
    members.first = 150
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1_000)
    write(other, 200)
    stands_by = restarted(other, Others(150), committed=StandsBy())
    stands_by.now = steps.now

    side_by_side(steps, stands_by, seconds=range(int(steps.now) + 1, 300))

    assert holes(site) == []
    assert tree(site)[-1][1] == 200


def test_a_member_that_is_away_now_and_then_keeps_no_hole_away_for_ever(site: Site) -> None:
    """All have said that they have none of it, and none gets it again."""
    claimed(site, 100)
    put(site, 150, 160)  # so that it is asked for at every look
    write(site, 50, start_offset=150)
    steps = restarted(site, members := Others(150))

    for now in range(10, 1000, 10):
        members.reachable = now % 60 > 20
        steps.go_on(1, 10)

    assert len(holes(site)) == 1
    assert tree(site)[-1][1] == 200
