"""Local retention that beat the upload: given up is only what nobody has, and never silently."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted, CommittedFile, Known
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.sending.slices import fragment_size, upload
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.between import landed
from coldstream.agent.stream.commits import Commits
from coldstream.agent.stream.follower import Job, StreamFollower
from coldstream.agent.stream.gaps import Gaps
from coldstream.agent.stream.state import Course
from coldstream.errors import (
    FencedError,
    LostRangeError,
    RefusedFragmentError,
    UnavailableError,
)
from coldstream.manifest.entries import EntryKind
from coldstream.plans.claim import claim as plan_claim
from coldstream.reader.verify import verify_stream
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.fragments import build_fragment
from coldstream_devkit.generator import write_stream

from .conftest import Site, no_pause

STREAM = "__orders_1745252105682952932"
SEGMENT = 8_000  # bytes: less than a chunk of ten messages


def write(site: Site, messages: int = 100, **more: Any) -> None:
    """Ten messages a chunk, one chunk a segment, so that retention can begin at any ten."""
    write_stream(
        site.data_dir / STREAM, messages=messages, chunk_messages=10, segment_bytes=SEGMENT, **more
    )


def retire(site: Site, below: int) -> None:
    """Local retention: segments that end at or below an offset go, index first."""
    for path in sorted((site.data_dir / STREAM).glob("*.segment")):
        if int(path.stem) < below:
            path.with_suffix(".index").unlink()
            path.unlink()


def put(site: Site, first: int, next_offset: int, *, epoch: int = 1, floor: int = 0) -> str:
    """A fragment that somebody uploaded, and whose event waits."""
    made = build_fragment(
        first, next_offset, stream=STREAM, epoch=epoch, floor=floor, uid=first + 1
    )
    path = made.path("rabbitmq/")
    site.store.put(path, made.data, write_id=path)
    return path


def claimed(site: Site, next_offset: int = 0) -> None:
    """A stream whose manifest an agent has made, up to `next_offset`."""
    write(site, max(next_offset, 10))
    site.run()
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()


def tree(site: Site) -> list[tuple[int, int, str]]:
    root = load(site.context(), STREAM).root
    found: list[tuple[int, int, str]] = []
    for entry in root.entries:
        kind = entry.kind.name
        if found and found[-1][2] == kind == "FRAGMENT":
            found[-1] = (found[-1][0], entry.next_offset, kind)
        else:
            found.append((entry.first_offset, entry.next_offset, kind))
    return found


def holes(site: Site) -> list[str]:
    return [key for key in site.store.objects if key.endswith(".hole")]


def test_a_range_that_nobody_has_is_declared_lost_and_the_stream_goes_on(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert tree(site) == [(0, 100, "FRAGMENT"), (100, 150, "HOLE"), (150, 200, "FRAGMENT")]
    assert progress.holes == [(100, 150)]
    (notice,) = progress.notices
    for part in ("offsets 100 to 149", STREAM, holes(site)[0], "lost", "by --last-copy"):
        assert part in notice
    assert verify_stream(site.store, site.catalog, "rabbitmq/", STREAM, deep=True).sound


def test_a_log_that_has_got_older_data_while_members_were_asked_is_looked_at_again(
    site: Site,
) -> None:
    """Found by the simulator: the node followed a writer with a longer log meanwhile, had the range
    itself when the hole over it was PUT, and nobody looked."""
    claimed(site, 100)
    write(site, 50, start_offset=150)

    class Members:
        def earliest(self, stream: str) -> int:
            for path in (site.data_dir / STREAM).iterdir():
                path.unlink()
            write(site, 200)
            return 150

        def lone(self, stream: str) -> bool:
            del stream
            return False

    refused = site.run(members=Members())[STREAM]

    assert holes(site) == []
    assert isinstance(refused.error, UnavailableError)
    assert "begins at 0 now" in str(refused.error)
    assert site.run()[STREAM].error is None
    assert tree(site) == [(0, 200, "FRAGMENT")]


def test_nothing_is_declared_lost_unless_the_operator_says_that_nobody_has_it(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    before = dict(site.store.objects)

    progress = site.run()[STREAM]

    assert isinstance(progress.error, LostRangeError)
    for part in ("--last-copy", "offsets 100 to 149", "150", "another node"):
        assert part in str(progress.error)
    remedy = getattr(progress.error, "remedy", "")
    assert "--last-copy" in remedy
    assert "other nodes" in remedy, "it says nothing else than the message"
    assert site.store.objects == before


@dataclass
class Others:
    """Other members, the oldest of which begins at `first`."""

    first: int | None
    asked: int = 0
    reachable: bool = True
    here_only: bool = False

    def earliest(self, stream: str) -> int | None:
        assert stream == STREAM
        self.asked += 1
        if not self.reachable:
            raise UnavailableError("1 of 3 members can be asked", stream=stream)
        return self.first

    def lone(self, stream: str) -> bool:
        assert stream == STREAM
        return self.here_only


@pytest.mark.parametrize("first", [0, 100, 120, 149])
def test_nothing_is_declared_lost_that_another_member_still_has(site: Site, first: int) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    progress = site.run(members=Others(first))[STREAM]

    assert isinstance(progress.error, LostRangeError)
    assert f"from {max(first, 100)} on" in str(progress.error)
    assert holes(site) == []


@pytest.mark.parametrize("first", [150, 180, None])
def test_what_no_member_has_any_more_is_declared_lost(site: Site, first: int | None) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    assert site.run(members=Others(first))[STREAM].error is None
    assert tree(site)[1] == (100, 150, "HOLE")


def test_members_are_not_asked_while_nothing_is_missing(site: Site) -> None:
    write(site, 100)
    others = Others(0)

    site.run(members=others)

    assert others.asked == 0


def test_a_second_agent_declares_nothing_again(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    site.run(last_copy=True)
    before = dict(site.store.objects)

    progress = site.run(last_copy=True)[STREAM]

    assert (progress.error, progress.holes) == (None, [])
    assert site.store.objects == before


def test_history_5_what_is_uploaded_and_waits_for_its_event_is_not_lost(site: Site) -> None:
    claimed(site, 100)
    put(site, 100, 200)
    write(site, 50, start_offset=250)

    progress = site.run(last_copy=True)[STREAM]

    assert progress.holes == [(200, 250)]
    assert tree(site) == [(0, 200, "FRAGMENT"), (200, 250, "HOLE"), (250, 300, "FRAGMENT")]


def test_what_lies_in_the_bucket_behind_a_gap_is_kept(site: Site) -> None:
    claimed(site, 100)
    put(site, 120, 130)
    put(site, 140, 150)
    write(site, 50, start_offset=180)

    progress = site.run(last_copy=True)[STREAM]

    assert progress.holes == [(100, 120), (130, 140), (150, 180)]
    assert tree(site)[1:] == [
        (100, 120, "HOLE"),
        (120, 130, "FRAGMENT"),
        (130, 140, "HOLE"),
        (140, 150, "FRAGMENT"),
        (150, 180, "HOLE"),
        (180, 230, "FRAGMENT"),
    ]


def test_what_an_older_writer_left_behind_a_gap_is_kept_by_the_claim_of_a_newer_one(
    site: Site,
) -> None:
    claimed(site, 100)
    put(site, 120, 150)
    write(site, 50, start_offset=180, epochs=((2, 180),))

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert tree(site)[1:] == [
        (100, 120, "HOLE"),
        (120, 150, "FRAGMENT"),
        (150, 180, "HOLE"),
        (180, 230, "FRAGMENT"),
    ]
    assert load(site.context(), STREAM).root.ledger.floor(2) == 150


def test_no_claim_shuts_out_what_lies_behind_a_gap_that_nobody_gave_up(site: Site) -> None:
    claimed(site, 100)
    put(site, 120, 150)
    write(site, 50, start_offset=180, epochs=((2, 180),))

    progress = site.run()[STREAM]

    assert isinstance(progress.error, LostRangeError)
    assert site.catalog.items[STREAM].epoch == 1


def test_a_fragment_behind_the_gap_that_does_not_hold_ends_no_hole_for_ever(site: Site) -> None:
    claimed(site, 100)
    made = build_fragment(120, 150, stream=STREAM).lying(floor=9)
    site.store.put(made.path("rabbitmq/"), made.data, write_id="bad")
    write(site, 50, start_offset=180)

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert tree(site)[1:] == [(100, 180, "HOLE"), (180, 230, "FRAGMENT")]


def test_a_fragment_that_a_commit_has_refused_is_not_waited_for_behind_what_is_missing(
    site: Site,
) -> None:
    claimed(site, 100)
    bad, _ = put(site, 120, 150), put(site, 160, 170)
    context = site.context()
    commits = Commits(context, OwnRights(context, no_pause, lambda: 0), STREAM, no_pause)
    gaps = Gaps(context, commits, StreamLog(site.data_dir / STREAM), None, no_pause)
    report = commits.commit()
    assert gaps.pending(report) == 120

    refused = RefusedFragmentError("its trailer does not hold", key=bad)
    assert gaps.pending(replace(report, refused=(refused,))) == 160


def test_nothing_is_declared_before_something_committed_can_follow(
    site: Site, tmp_path: Path
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({STREAM: 155}))

    site.run(committed=CommittedFile(offsets), last_copy=True)

    assert holes(site) == []


def test_a_lone_segment_without_its_index_is_no_lost_range(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=120)
    (site.data_dir / STREAM / f"{120:020d}.index").unlink()

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is not None
    assert holes(site) == []


class Dies(BaseException):
    """kill -9, as seen from inside."""


class DyingStore:
    """Passes calls on until the n-th PUT, before or after which the process dies."""

    def __init__(self, store: Any, puts: int, *, after: bool) -> None:
        self._store, self._puts, self._after = store, puts, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        self._puts -= 1
        if self._puts < 0 or (self._puts == 0 and not self._after):
            raise Dies
        self._store.put(key, body, write_id=write_id, crc=crc)
        if self._puts == 0:
            raise Dies


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("puts", range(1, 12))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_agent_that_dies_at_any_put_ends_in_the_same_manifest(
    site: Site, puts: int, after: bool
) -> None:
    claimed(site, 100)
    put(site, 120, 130)
    write(site, 50, start_offset=150, epochs=((2, 150),))
    doomed = site.agent(store=DyingStore(site.store, puts, after=after), last_copy=True)
    with contextlib.suppress(Dies):
        doomed.run()

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert tree(site)[1:] == [
        (100, 120, "HOLE"),
        (120, 130, "FRAGMENT"),
        (130, 150, "HOLE"),
        (150, 200, "FRAGMENT"),
    ]
    assert verify_stream(site.store, site.catalog, "rabbitmq/", STREAM, deep=True).sound


@dataclass
class Meddling:
    """A store before whose first PUT of a hole something happens."""

    store: Any
    happens: Callable[[], Any]
    fails: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        if key.endswith(".hole"):
            happens, self.happens = self.happens, lambda: None
            happens()
            if self.fails:
                self.fails = False
                self.store.put(key, body, write_id=write_id, crc=crc)
                raise UnavailableError("no answer", key=key)
        self.store.put(key, body, write_id=write_id, crc=crc)


def test_a_fragment_that_lands_just_before_the_hole_wins(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    progress = site.run(store=Meddling(site.store, lambda: put(site, 100, 140)), last_copy=True)[
        STREAM
    ]

    assert progress.error is None
    assert tree(site) == [(0, 140, "FRAGMENT"), (140, 150, "HOLE"), (150, 200, "FRAGMENT")]


def test_a_fragment_that_lands_inside_the_range_just_before_the_hole_wins(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    progress = site.run(store=Meddling(site.store, lambda: put(site, 120, 140)), last_copy=True)[
        STREAM
    ]

    assert progress.error is None
    assert tree(site)[1:] == [
        (100, 120, "HOLE"),
        (120, 140, "FRAGMENT"),
        (140, 150, "HOLE"),
        (150, 200, "FRAGMENT"),
    ]


def test_a_hole_whose_answer_was_lost_is_found_again(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    store = Meddling(site.store, lambda: None, fails=True)

    site.run(store=store, last_copy=True)
    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert len(holes(site)) == 1
    assert tree(site)[1] == (100, 150, "HOLE")


def test_a_hole_whose_answer_was_lost_is_told_all_the_same(site: Site) -> None:
    """No hole is ever silent: the next look finds it declared, by this very agent."""
    claimed(site, 100)
    write(site, 50, start_offset=150)
    site.store = Meddling(site.store, lambda: None, fails=True)  # type: ignore[assignment]
    steps = Steps(site, last_copy=True)

    steps.step()
    assert (len(holes(site)), steps.follower.progress.holes) == (1, [])
    steps.step(60)

    assert len(holes(site)) == 1
    assert steps.follower.progress.holes == [(100, 150)]
    assert "offsets 100 to 149 are lost" in steps.follower.progress.notices[0]


def test_a_claim_of_a_higher_epoch_meanwhile_makes_the_hole_worthless(site: Site) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)

    def claim() -> None:
        context = site.context()
        loaded = load(context, STREAM)
        publish(context, loaded, plan_claim(loaded.root, 2), claim=True)

    progress = site.run(store=Meddling(site.store, claim), last_copy=True)[STREAM]
    commit_runs(site.context(), STREAM, pause=no_pause)

    assert isinstance(progress.error, FencedError)
    assert tree(site) == [(0, 100, "FRAGMENT")]


# One follower, step by step.


class Steps:
    """A follower whose uploads are carried out when the test says so."""

    def __init__(
        self,
        site: Site,
        members: Any = None,
        held: Held | None = None,
        committed: Any = None,
        **settings: Any,
    ) -> None:
        self.site = site
        self.now = 0.0
        context = site.context()
        self.follower = StreamFollower(
            context=context,
            function=OwnRights(context, no_pause, lambda: 0),
            log=StreamLog(site.data_dir / STREAM, held or DISK),
            committed=committed or AllCommitted(),
            settings=AgentSettings(target_size=SEGMENT, nudge_seconds=5, **settings),
            requests=None,
            names={},
            pause=no_pause,
            started=0.0,
            members=members,
            held=held,
        )

    def go_on(self, looks: int, seconds: float = 100.0) -> None:
        """Look, upload all that is cut, and commit it; so many times."""
        for _ in range(looks):
            for job in self.step(seconds):
                self.upload(job)
            self.site.ask(STREAM)

    def step(self, seconds: float = 1.0, most: int = 3) -> list[Job]:
        self.now += seconds
        return self.follower.step(self.now, time.time_ns() // 1_000_000, most=most)

    def upload(self, job: Job) -> None:
        context = self.follower.context
        buffer = bytearray(fragment_size(job.piece))
        done = upload(
            context.store, job.log, job.piece, job.placement,
            prefix=context.prefix, uid=context.new_uid(), buffer=buffer,
        )  # fmt: skip
        self.follower.finished(done, self.now)


def test_nothing_is_declared_lost_while_too_few_members_can_be_asked_and_it_is_tried_again(
    site: Site,
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    before = dict(site.store.objects)
    others = Others(None, reachable=False)
    stepped = Steps(site, members=others, takeover_seconds=10)

    for asked in (1, 2, 3):
        assert stepped.step(seconds=600) == []
        assert isinstance(stepped.follower.progress.error, UnavailableError)
        assert "1 of 3 members" in str(stepped.follower.progress.error)
        assert others.asked == asked
    assert site.store.objects == before
    assert stepped.follower.progress.holes == []

    others.reachable = True
    stepped.go_on(1)
    assert holes(site) == [], "its agent may hold more than its log has"
    stepped.go_on(8)
    assert stepped.follower.progress.error is None
    assert stepped.follower.progress.holes == [(100, 150)]
    assert tree(site)[:2] == [(0, 100, "FRAGMENT"), (100, 150, "HOLE")]


@dataclass
class Neighbour:
    """Another node's agent, which holds open what every broker has removed."""

    site: Site
    data_dir: Path

    def holds(self, messages: int) -> None:
        write_stream(
            self.data_dir / STREAM, messages=messages, chunk_messages=10, segment_bytes=SEGMENT
        )
        self.steps = Steps(Site(self.data_dir, self.site.store, self.site.catalog, seed=1_000))

    def acts(self) -> None:
        for _ in range(4):
            for job in self.steps.step(100.0):
                self.steps.upload(job)


def test_what_another_nodes_agent_holds_open_is_waited_for_and_not_declared_lost(
    site: Site, tmp_path: Path
) -> None:
    """The agent beside the writer began anew while the store was away, and has lost its own files;
    retention has taken the range on every node."""
    claimed(site, 100)
    neighbour = Neighbour(site, tmp_path / "other")
    neighbour.holds(200)
    write(site, 50, start_offset=150)
    steps = Steps(site, members=Others(150), flush_ms=10_000, takeover_seconds=20)

    while steps.follower.progress.error is None:
        steps.go_on(1, 10.0)
        assert holes(site) == []
    assert isinstance(steps.follower.progress.error, LostRangeError)
    assert "another node's agent may hold more open" in str(steps.follower.progress.error)
    neighbour.acts()
    commit_runs(site.context(), STREAM, pause=no_pause)
    steps.go_on(3)

    assert holes(site) == []
    assert tree(site)[-1][1] == 200
    assert steps.follower.progress.error is None


def test_what_nobody_uploads_within_the_time_of_a_take_over_is_declared_lost_then(
    site: Site,
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    steps = Steps(site, members=Others(150), flush_ms=10_000, takeover_seconds=20)

    for waited in (0, 15, 10, 10, 34):
        steps.go_on(1, waited)
        assert holes(site) == []
    steps.go_on(3)

    assert tree(site) == [(0, 100, "FRAGMENT"), (100, 150, "HOLE"), (150, 200, "FRAGMENT")]
    assert steps.follower.progress.holes == [(100, 150)]


def test_a_log_of_a_new_epoch_waits_for_what_another_nodes_agent_holds_before_it_claims(
    site: Site, tmp_path: Path
) -> None:
    claimed(site, 100)
    neighbour = Neighbour(site, tmp_path / "other")
    neighbour.holds(150)
    write(site, 50, start_offset=150, epochs=((2, 150),))
    steps = Steps(site, members=Others(150), flush_ms=10_000, takeover_seconds=20)

    assert steps.step(10.0) == []
    assert "another node's agent may hold more open" in str(steps.follower.progress.error)
    neighbour.acts()
    commit_runs(site.context(), STREAM, pause=no_pause)
    for _ in range(5):
        steps.go_on(1)

    assert holes(site) == []
    assert tree(site) == [(0, 200, "FRAGMENT")]


def test_no_time_is_given_where_the_agent_has_seen_the_log_join_the_manifest(site: Site) -> None:
    """It holds itself what goes from then on; where it could not, more would go while it waits."""
    write(site, 100)
    steps = Steps(site, members=Others(150), flush_ms=10_000, takeover_seconds=20)
    steps.go_on(4)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 200)
    assert steps.step(most=0) == []  # the link is slow
    retire(site, 150)

    steps.go_on(2)

    assert steps.follower.progress.holes == [(100, 150)]


def test_nothing_is_declared_lost_while_an_upload_of_ours_is_under_way(site: Site) -> None:
    write(site, 50)
    steps = Steps(site, last_copy=True)
    first, second, third = steps.step()
    steps.upload(first)
    late, gone = second, third
    write_later = build_fragment(10, 20, stream=STREAM, uid=5)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 50, start_offset=80)

    for _ in range(5):
        assert steps.step() == []
        assert holes(site) == []
    # One of them was sent before its file went away, the other was not.
    site.store.put(write_later.path("rabbitmq/"), write_later.data, write_id="late")
    course = steps.follower.course
    steps.follower.course = landed(course, late.piece.first_offset, steps.now)
    steps.step()
    assert holes(site) == []
    steps.follower.failed(gone.piece, UnavailableError("the file is gone"), steps.now)
    jobs = steps.step(60)
    jobs = jobs or steps.step()

    assert late.piece.first_offset == 10
    assert steps.follower.progress.holes == [(20, 80)]
    assert [job.piece.first_offset for job in jobs][:1] == [80]


def test_what_follows_a_hole_is_cut_at_once_because_the_hole_waits_for_it(site: Site) -> None:
    claimed(site, 100)
    now_ms = time.time_ns() // 1_000_000
    write_stream(
        site.data_dir / STREAM, messages=10, chunk_messages=10, start_offset=150,
        start_timestamp=now_ms,
    )  # fmt: skip
    steps = Steps(site, last_copy=True, flush_ms=3_600_000)

    steps.step()
    (job,) = steps.step()
    steps.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)

    assert tree(site)[1:] == [(100, 150, "HOLE"), (150, 160, "FRAGMENT")]


def test_local_retention_that_passes_uploads_which_have_landed_loses_nothing(site: Site) -> None:
    write(site, 50)
    steps = Steps(site, last_copy=True, flush_ms=0)
    for job in steps.step(most=5):
        steps.upload(job)
    retire(site, 40)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 20, start_offset=50)

    for _ in range(3):
        for job in steps.step():
            steps.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)

    assert tree(site) == [(0, 70, "FRAGMENT")]
    assert holes(site) == []


def test_uploads_that_land_out_of_order_make_no_waiting_hole_count_over_the_first(
    site: Site,
) -> None:
    claimed(site, 100)
    write(site, 50, start_offset=150)
    doomed = Steps(site, last_copy=True)
    doomed.step()  # it has declared the hole, and dies
    assert len(holes(site)) == 1
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write_stream(
        site.data_dir / STREAM, messages=100, chunk_messages=50, segment_bytes=SEGMENT,
        start_offset=100,
    )  # fmt: skip

    other = Steps(site, last_copy=True, flush_ms=0)  # of a node that has all of it
    (first,) = other.step()
    assert other.step() == []
    other.upload(first)
    for job in other.step():
        other.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)

    assert tree(site) == [(0, 200, "FRAGMENT")]


def test_two_agents_that_lost_different_ranges_end_in_one_manifest(
    site: Site, tmp_path: Path
) -> None:
    claimed(site, 100)
    other = Site(tmp_path / "other", site.store, site.catalog, seed=1000)
    other.data_dir.mkdir()
    write(site, 50, start_offset=150)
    write(other, 70, start_offset=130)
    mine, others = Steps(site, last_copy=True), Steps(other, last_copy=True)
    mine.step()
    others.step()
    assert len(holes(site)) == 2

    for job in others.step():
        others.upload(job)
    for job in mine.step():
        mine.upload(job)
    commit_runs(site.context(), STREAM, pause=no_pause)

    root = load(site.context(), STREAM).root
    assert tree(site)[1] == (100, 130, "HOLE")
    assert [each.kind for each in root.entries].count(EntryKind.HOLE) == 1


def test_a_segment_that_is_missing_amid_the_local_log_is_an_error_and_no_hole(site: Site) -> None:
    write(site, 100)
    for suffix in ("segment", "index"):
        (site.data_dir / STREAM / f"{50:020d}.{suffix}").unlink()

    progress = site.run(last_copy=True)[STREAM]

    assert "nothing from here up to 60" in str(progress.error)
    assert tree(site) == [(0, 50, "FRAGMENT")]
    assert not any(f"{60:020d}-" in key for key in site.store.objects)


def test_what_lies_before_a_damaged_index_is_durable_and_not_cut_again_for_ever(site: Site) -> None:
    write(site, 100)
    path = site.data_dir / STREAM / f"{50:020d}.index"
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    progress = site.run()[STREAM]

    assert progress.error is not None
    assert tree(site) == [(0, 50, "FRAGMENT")]


class Said:
    """What is committed, as a test says it."""

    def __init__(self, limit: int) -> None:
        self.value = limit

    def refresh(self, stream: str, now: float) -> float:
        return now

    def conclude(self, log: StreamLog, sure: int) -> None:
        pass

    def forget(self, stream: str) -> None:
        pass

    def known(self, stream: str) -> Known:
        return Known()

    def limit(self, stream: str) -> int:
        assert stream == STREAM
        return self.value

    def warnings(self) -> list[str]:
        return []


def uploaded(site: Site, committed: Any = None) -> Steps:
    """An agent that follows, and has uploaded a log of 100."""
    write(site, 100)
    steps = Steps(site, last_copy=True)
    if committed is not None:
        steps.follower.committed = committed
    for _ in range(12):
        for job in steps.step():
            steps.upload(job)
        commit_runs(site.context(), STREAM, pause=no_pause)
    assert steps.follower.progress.next_offset == 100
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    return steps


def test_a_hole_is_not_declared_in_front_of_what_is_not_committed(site: Site) -> None:
    """Nothing could follow it: it would wait, and another log may yet have other data there."""
    said = Said(100)
    steps = uploaded(site, said)
    write(site, 50, start_offset=150)

    for _ in range(5):
        assert steps.step(60) == []

    assert holes(site) == []
    assert "nothing is committed yet" in str(steps.follower.progress.error)
    said.value = 160
    steps.step(60)
    assert steps.follower.progress.holes == [(100, 150)]


def test_a_hole_ends_where_a_committed_chunk_begins_and_nowhere_else(site: Site) -> None:
    said = Said(160)
    steps = uploaded(site, said)
    write(site, 50, start_offset=150)
    index = site.data_dir / STREAM / f"{150:020d}.index"
    index.write_bytes(index.read_bytes()[:8])  # the broker has only just begun the segment

    steps.step(60)

    assert holes(site) == []


def test_an_agent_declares_nothing_under_a_claim_that_is_not_its_own(site: Site) -> None:
    steps = uploaded(site)
    context = site.context()
    loaded = load(context, STREAM)
    publish(context, loaded, plan_claim(loaded.root, 2), claim=True)
    write(site, 50, start_offset=150)

    for _ in range(5):
        assert steps.step(60) == []

    assert holes(site) == []
    assert isinstance(steps.follower.progress.error, FencedError)


def test_a_gap_in_front_of_the_own_log_alone_is_declared_once_under_the_own_epoch(
    site: Site,
) -> None:
    """Before the claim it would be a hole of the older epoch, which the claim's floor shuts out."""
    claimed(site, 100)
    write(site, 50, start_offset=150, epochs=((2, 150),))

    progress = site.run(last_copy=True)[STREAM]

    assert progress.error is None
    assert [key.rsplit("/", 1)[1].split(".")[1] for key in holes(site)] == [f"{2:010d}"]


def test_no_hole_is_made_of_what_is_held_while_a_deletion_removes_files_in_any_order(
    site: Site,
) -> None:
    """Of one segment the index is still there; its bytes are held, and nowhere else."""
    write(site, 20)
    held = Held(DISK, budget=2**30, most=100)
    stepped = Steps(site, held=held, last_copy=True, flush_ms=1000)
    stepped.go_on(5)
    assert tree(site) == [(0, 20, "FRAGMENT")]
    write(site, 50, start_offset=20)
    held.keep_new(site.data_dir / STREAM)
    retire(site, 20)
    (site.data_dir / STREAM / f"{20:020d}.segment").unlink()

    stepped.go_on(6)

    assert stepped.follower.progress.holes == []
    assert tree(site)[0][0] == 0
    assert tree(site)[0][1] > 20


def test_no_hole_is_made_of_what_is_held_where_a_deletion_leaves_the_index_of_a_durable_segment(
    site: Site,
) -> None:
    write(site, 20)
    held, directory = Held(DISK, budget=2**30, most=100), site.data_dir / STREAM
    stepped = Steps(site, held=held, last_copy=True, flush_ms=1000)
    stepped.go_on(5)
    write(site, 50, start_offset=20)
    held.keep_new(directory, proved=70)
    (directory / f"{0:020d}.segment").unlink()
    for first in (10, 20):
        (directory / f"{first:020d}.index").unlink()
        (directory / f"{first:020d}.segment").unlink()

    stepped.go_on(6)

    assert stepped.follower.progress.holes == []
    assert tree(site)[0][1] > 20


def test_what_is_held_below_a_gap_shows_that_the_manifest_is_of_another_history(
    site: Site,
) -> None:
    """All members lost a tail with their power, and wrote it anew; retention was quick."""
    claimed(site, 100)
    write(site, 100, epochs=((1, 0), (2, 80)))
    held = Held(DISK, budget=2**30, most=100)
    log = StreamLog(site.data_dir / STREAM, held)
    held.keep(log.directory, log.segments(), 75, proved=100)
    retire(site, 1000)
    write(site, 60, start_offset=120, epochs=((2, 120),))
    stepped = Steps(site, held=held, last_copy=True, flush_ms=1000)
    stepped.follower.course = Course(next_offset=75)

    stepped.go_on(12)

    data = [key.rsplit("/", 1)[1] for key in site.store.objects if "/data/" in key]
    assert any(name.startswith(f"{80:020d}-") and ".0000000002." in name for name in data)


@pytest.mark.parametrize("holds", [False, True])
def test_what_an_older_writer_has_uploaded_in_a_gap_is_taken_whatever_is_held_below_it(
    site: Site, holds: bool
) -> None:
    """A claim that sees no gap shuts it out for ever."""
    write(site, 100)
    site.run()
    put(site, 120, 150)
    held = Held(DISK, budget=2**30, most=100)
    log = StreamLog(site.data_dir / STREAM, held)
    if holds:
        held.keep(log.directory, log.segments(), 100, proved=100)
    retire(site, 1000)
    write(site, 60, start_offset=180, epochs=((1, 180), (2, 185)))

    Steps(site, held=held, last_copy=True).go_on(12)

    assert (120, 150, "FRAGMENT") in tree(site)


def test_an_upload_whose_range_another_agent_has_published_may_fail(
    site: Site, tmp_path: Path
) -> None:
    """What was held for it is let go then: the stream was told to fail, for a file that is gone."""
    neighbour = Neighbour(site, tmp_path / "other")
    neighbour.holds(100)
    write(site, 100)
    steps = Steps(site)
    jobs = steps.step()
    neighbour.acts()
    commit_runs(site.context(), STREAM, pause=no_pause)
    jobs += steps.step(60)
    for path in (site.data_dir / STREAM).iterdir():
        path.unlink()
    write(site, 20, start_offset=100)

    for job in jobs:
        steps.follower.failed(job.piece, UnavailableError("the file is gone"), steps.now)
        assert steps.follower.progress.error is None
    steps.go_on(4)

    assert holes(site) == []
    assert tree(site)[-1][1] == 120
