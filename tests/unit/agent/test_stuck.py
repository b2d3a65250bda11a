"""A manifest that does not follow: nothing is uploaded twice, and somebody is told."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.agent.broker.committed import AllCommitted
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.host import ThisMachine
from coldstream.agent.sending.slices import fragment_size, upload
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.follower import Job, StreamFollower
from coldstream.errors import ConflictError, UnavailableError
from coldstream.manifest.catalog import StreamState
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site, no_pause

STREAM = "__orders_1745252105682952932"
NUDGE = 5.0


def uploads(site: Site) -> list[str]:
    return sorted(key for key in site.store.objects if "/data/" in key)


@dataclass
class Slow:
    """One follower on a clock of its own; its uploads land at once, and nobody commits them."""

    site: Site
    settings: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    puts: int = 0
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = self.site.context()
        self.follower = StreamFollower(
            context=context,
            function=OwnRights(context, no_pause, lambda: 0),
            log=StreamLog(self.site.data_dir / STREAM),
            committed=AllCommitted(),
            settings=AgentSettings(
                **{
                    "target_size": 20_000,
                    "nudge_seconds": NUDGE,
                    "flush_ms": 0,
                    "bucket": "a-bucket",
                    **self.settings,
                }
            ),
            requests=self,
            names={},
            pause=no_pause,
            started=0.0,
        )

    def ask(self, stream: str) -> None:
        self.asked.append(self.now)

    def land(self, job: Job) -> None:
        context = self.follower.context
        buffer = bytearray(fragment_size(job.piece))
        done = upload(
            context.store, job.log, job.piece, job.placement,
            prefix=context.prefix, uid=context.new_uid(), buffer=buffer,
        )  # fmt: skip
        self.puts += 1
        self.follower.finished(done, self.now)

    def go(self, seconds: float, *, until: Any = None) -> None:
        end = self.now + seconds
        while self.now < end and not (until and until()):
            self.now += 0.5
            for job in self.follower.step(self.now, time.time_ns() // 1_000_000, most=6):
                self.land(job)


def told(agent: Slow) -> Exception | None:
    return agent.follower.progress.error


def test_a_manifest_that_never_follows_costs_no_second_copy_of_anything(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(10)
    before = uploads(site)

    agent.go(3600)

    assert before
    assert uploads(site) == before
    assert agent.puts == len(before)


def test_a_manifest_that_never_follows_is_told_with_what_to_check(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)

    agent.go(60)

    error = agent.follower.progress.error
    assert isinstance(error, UnavailableError)
    assert (error.stream, error.offset) == (STREAM, 0)
    words = str(error)
    for part in ("a-bucket", "rabbitmq/", "commit function", "queue", "dead-letter queue"):
        assert part in words
    assert agent.follower.progress.cut_offset == 100, "and it still counts as behind"
    assert not agent.follower.settled


def test_commits_are_asked_for_ever_more_seldom_while_none_comes(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)

    agent.go(3600)

    pauses = [later - earlier for earlier, later in zip(agent.asked, agent.asked[1:], strict=False)]
    assert len(agent.asked) < 25
    assert pauses[-1] >= 600
    assert sorted(pauses[2:]) == pauses[2:]


def test_the_word_on_a_stuck_manifest_is_taken_back_once_it_follows(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(60)
    assert told(agent) is not None

    commit_runs(site.context(), STREAM, pause=no_pause)
    agent.go(5)

    assert told(agent) is None
    assert agent.follower.progress.next_offset == 100
    assert agent.follower.settled


def test_a_stream_that_was_committed_to_before_is_committed_by_the_agent_and_it_says_so(
    site: Site,
) -> None:
    written = write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(3)
    commit_runs(site.context(), STREAM, pause=no_pause)
    agent.go(3)
    puts = agent.puts
    append_chunks(
        site.data_dir / STREAM,
        [build_chunk(written.next_offset, 1, written.next_timestamp, [b"a"])],
    )

    agent.go(60)

    assert agent.puts == puts + 1
    assert agent.follower.progress.next_offset == 101
    (notice,) = agent.follower.progress.notices
    for part in ("a-bucket", "rabbitmq/", "commit function", STREAM, "100"):
        assert part in notice
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)


def test_a_stream_that_never_stops_uploading_is_looked_after_too(site: Site) -> None:
    written = write_stream(site.data_dir / STREAM, messages=10, chunk_messages=10)
    agent = Slow(site)
    next_offset, timestamp = written.next_offset, written.next_timestamp
    for _ in range(100):
        append_chunks(
            site.data_dir / STREAM, [build_chunk(next_offset, 1, timestamp, [b"a" * 100])]
        )
        next_offset, timestamp = next_offset + 1, timestamp + 1
        agent.go(2)

    assert agent.asked
    assert isinstance(agent.follower.progress.error, UnavailableError)
    assert len({key.rsplit(".", 3)[0] for key in uploads(site)}) == agent.puts


@pytest.mark.parametrize("how", ["vanished", "refused"])
def test_an_upload_that_is_not_there_or_was_refused_is_cut_again(site: Site, how: str) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(3)
    before = uploads(site)
    assert len(before) > 3
    if how == "vanished":
        del site.store.objects[before[2]]
    else:
        site.store.objects[before[2]] = b"rotten" * 100

    agent.go(60)
    commit_runs(site.context(), STREAM, pause=no_pause)

    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)
    assert before[0] in uploads(site)
    again = [key for key in uploads(site) if key not in before]
    assert min(again) > before[1].rsplit("-", 1)[0], "what was good before it was not cut again"


def test_what_is_refused_again_and_again_is_cut_again_ever_more_seldom_and_told(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=10, chunk_messages=10)
    agent = Slow(site)

    for _ in range(3600):
        agent.go(1)
        for key in uploads(site):
            site.store.objects[key] = b"rotten" * 100

    assert 4 < agent.puts < 20
    error = agent.follower.progress.error
    assert isinstance(error, UnavailableError)
    assert "refused" in str(error)


def test_a_one_shot_run_says_that_a_new_stream_was_never_committed_to(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = site.agent(nudge_seconds=0.02)
    agent.requests = None

    (progress,) = agent.run()

    assert isinstance(progress.error, UnavailableError)
    assert "no commit has ever come" in str(progress.error)
    assert progress.fragments == len(uploads(site))
    assert progress.next_offset < progress.cut_offset


def test_a_one_shot_run_whose_commit_comes_late_ends_without_an_error(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site, {"once": True})
    agent.go(30)

    commit_runs(site.context(), STREAM, pause=no_pause)
    agent.go(60, until=lambda: agent.follower.settled)

    assert agent.follower.settled
    assert told(agent) is None


def test_a_one_shot_run_ends_although_other_streams_go_on_for_long(site: Site) -> None:
    """A stream that was given up is not opened again while the others are still at work."""
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site, {"once": True})

    agent.go(600)

    assert agent.follower.settled
    assert agent.puts == len(uploads(site))
    assert site.catalog.items[STREAM].next_offset == 0


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.DELETED])
def test_an_agent_on_a_stream_that_was_deleted_names_the_way_back(
    site: Site, state: StreamState
) -> None:
    write_stream(site.data_dir / STREAM, messages=10)
    site.run()
    site.catalog.items[STREAM] = replace(site.catalog.items[STREAM], state=state)

    error = site.run()[STREAM].error

    assert isinstance(error, ConflictError)
    assert f"coldstream undelete {STREAM}" in str(error)


def test_a_stream_that_is_deleted_while_its_manifest_is_behind_says_so(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(3)
    site.catalog.items[STREAM] = replace(site.catalog.items[STREAM], state=StreamState.DELETING)

    agent.go(60)

    assert "coldstream undelete" in str(agent.follower.progress.error)


def test_for_a_stream_that_is_deleted_while_its_manifest_is_behind_no_commit_is_asked(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(3)
    assert agent.asked == []
    site.catalog.items[STREAM] = replace(site.catalog.items[STREAM], state=StreamState.DELETING)

    agent.go(60)

    assert agent.asked == []


def test_a_new_stream_whose_claim_is_in_another_bucket_goes_on_and_says_so(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    wrong = site.agent(nudge_seconds=0.02)
    wrong.requests = None
    wrong.run()
    site.store.objects.clear()

    progress = site.run(bucket="right-bucket")[STREAM]

    assert progress.error is None
    assert site.remote_chunks(STREAM) == site.local_chunks(STREAM)
    assert any("right-bucket" in each and "anew" in each for each in progress.notices)


def test_an_emptied_bucket_is_told_loudly_with_its_name(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    site.run()
    site.store.objects.clear()

    error = site.run(bucket="empty-bucket")[STREAM].error

    assert isinstance(error, ConflictError)
    for part in ("empty-bucket", "0..100", "emptied", "rabbitmq/"):
        assert part in str(error)
    assert "run-the-agent.md" in getattr(error, "remedy", "")
    assert site.store.objects == {}


def test_a_directory_that_is_gone_for_a_moment_is_tried_again(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = site.agent(once=False, rescan_seconds=0.05, flush_ms=0, host=ThisMachine())
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        _wait(lambda: STREAM in site.catalog.items)
        moved = site.data_dir.rename(site.data_dir.with_name("elsewhere"))
        _wait(lambda: any("cannot be read" in each for each in agent.warnings))
        moved.rename(site.data_dir)
        _wait(lambda: site.catalog.items[STREAM].next_offset == 100 and not agent.warnings)
        assert thread.is_alive()
    finally:
        agent.stop()
        thread.join()


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_manifest_that_has_moved_is_waited_for_anew_as_if_it_had_never_stood_still(
    site: Site,
) -> None:
    """Else what is uploaded after one long outage is looked after minutes late, every time."""
    written = write_stream(site.data_dir / STREAM, messages=100, chunk_messages=10)
    agent = Slow(site)
    agent.go(3600)
    commit_runs(site.context(), STREAM, pause=no_pause)
    agent.go(1200)
    assert agent.follower.settled
    agent.asked.clear()
    append_chunks(
        site.data_dir / STREAM,
        [build_chunk(written.next_offset, 1, written.next_timestamp, [b"a"])],
    )

    agent.go(6 * NUDGE)

    assert len(agent.asked) == 2
    assert agent.follower.progress.next_offset == 101
