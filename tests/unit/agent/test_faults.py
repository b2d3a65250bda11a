"""A call that fails, whichever it is: nothing that was cut is forgotten, and no stream stays stuck.

Found by a stranger: a table that did not answer in the very step that had cut a slice made the
agent throw the slice away and wait for its upload for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.agent.sending import slices as upload
from coldstream.agent.sending.slices import BufferPool
from coldstream.agent.telling.progress import Progress
from coldstream.errors import UnavailableError
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream
from tests.support.slow import long, slow, some

from .conftest import Site
from .disturbed import Broken, Faults, Run, durable
from .machine import Machine

ONE, OTHER = "__one_1", "__other_2"


def begin(site: Site, **more: Any) -> Run:
    """Two streams; one of them gets a segment, then another writer, while the agent runs."""
    streams = {
        name: write_stream(
            site.data_dir / name, messages=count, chunk_messages=10, segment_bytes=4_000, seed=count
        )
        for name, count in ((ONE, 20), (OTHER, 10))
    }
    ends = {name: (each.next_offset, each.next_timestamp) for name, each in streams.items()}

    def grow(name: str, epoch: int, chunks: int, *, roll: bool) -> Callable[[], None]:
        def act() -> None:
            first, timestamp = ends[name]
            made = [
                build_chunk(first + number, epoch, timestamp + number, [b"x" * 900])
                for number in range(chunks)
            ]
            append_chunks(site.data_dir / name, made, roll=roll)
            ends[name] = first + chunks, timestamp + chunks

        return act

    happens = {
        4: grow(ONE, 1, 5, roll=True),
        7: grow(ONE, 3, 4, roll=False),
        8: grow(OTHER, 1, 2, roll=False),
    }
    return Run(site, happens=happens, **more)


def unavailable() -> BaseException:
    return UnavailableError("no answer")


def broken() -> BaseException:
    return Broken("nobody expects this")


def no_disk() -> BaseException:
    return OSError(5, "Input/output error")


def calls_of_a_clean_run(tmp: Site, **more: Any) -> int:
    run = begin(tmp, **more)
    run.go()
    assert durable(tmp, ONE)
    assert durable(tmp, OTHER)
    assert run.looks < 60
    return run.faults.calls


@pytest.mark.parametrize(
    ("error", "length", "after", "commits"),
    [
        (unavailable, 1, False, True),
        (unavailable, 1, True, False),
        (unavailable, 25, False, False),
        (broken, 1, False, False),
        (no_disk, 3, False, True),
    ],
)
@pytest.mark.parametrize("most", [25, *slow([60]), *long([10**6])])
def test_whichever_call_fails_every_stream_becomes_durable_without_a_restart(
    most: int,
    tmp_path_factory: pytest.TempPathFactory,
    error: Callable[[], BaseException],
    length: int,
    after: bool,
    commits: bool,
) -> None:
    """With and without a commit function; before the call does anything, and after it has."""

    def site() -> Site:
        return Site(tmp_path_factory.mktemp("site"))

    count = calls_of_a_clean_run(site(), commits=commits, after=after)
    stuck = []
    for number in (1 + at for at in some(count, False, most=most)):
        where = site()
        run = begin(where, faults=Faults(number, length, error), commits=commits, after=after)
        run.go()
        if not (durable(where, ONE) and durable(where, OTHER)):
            stuck.append((number, run.faults.names[number - 1]))

    assert not stuck, f"{len(stuck)} of {count}: {stuck[:10]}"


def test_a_slice_whose_upload_cannot_begin_is_cut_again(site: Site) -> None:
    """No thread can be made: the loop goes on, and so do all streams."""

    def fails(number: int) -> None:
        if number in (1, 4, 5):
            raise RuntimeError("can't start new thread")

    begin(site, machine=Machine(submits=fails)).go()

    assert durable(site, ONE)
    assert durable(site, OTHER)


def test_an_upload_that_was_queued_although_its_thread_could_not_be_made_counts_once(
    site: Site,
) -> None:
    """`ThreadPoolExecutor.submit` queues first and makes the thread then."""

    def fails(number: int) -> None:
        if number in (1, 2, 4):
            raise RuntimeError("can't start new thread")

    run = begin(site, machine=Machine(submits=fails, queues=True))
    run.go()

    assert durable(site, ONE)
    assert durable(site, OTHER)
    assert run.agent._work.room == 22
    assert not run.agent._work.jobs


def test_a_report_that_cannot_be_written_does_not_end_the_agent(site: Site) -> None:
    run = begin(site)
    report = run.agent.report

    def full(rows: list[Progress]) -> None:
        report(rows)
        raise OSError(28, "No space left on device")

    run.agent.report = full
    run.go()

    assert durable(site, ONE)


def test_memory_that_is_short_for_a_moment_costs_no_budget_for_ever() -> None:
    pool = BufferPool(100, threading.Condition())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "bytearray", _no_memory, raising=False)
        for _ in range(3):
            with pytest.raises(MemoryError):
                pool.take(80, stop=lambda: False)

    assert pool.take(80, stop=lambda: True) is None
    stops = iter([False, True])
    assert pool.take(80, stop=lambda: next(stops)) is not None


def _no_memory(size: int) -> bytearray:
    raise MemoryError(size)


def test_what_was_cut_is_uploaded_although_the_look_at_the_manifest_fails(site: Site) -> None:
    """The history that was found: the table does not answer in the step that cuts."""
    run = begin(site)
    first = run.happens[4]
    run.happens.clear()
    run.go()
    first()
    follower, machine = run.agent._followers[ONE], run.machine
    call = run.faults.call

    def no_table(name: str) -> None:
        if name.startswith("catalog."):
            raise unavailable()
        call(name)

    run.faults.call = no_table  # type: ignore[method-assign]
    machine.now += 1
    jobs = follower.step(machine.now, machine.now_ms(), most=3)

    assert jobs, "whoever uploads gets what was cut"
    assert len(follower.course.flying) == len(jobs)
    assert isinstance(follower.progress.error, UnavailableError)


def test_nothing_is_cut_twice_because_a_look_failed_while_uploads_were_under_way(
    site: Site,
) -> None:
    """The stream is opened again, and cut from where its manifest ends, once they have ended."""
    run = begin(site)
    run.happens.clear()
    run.agent._discover(run.machine.now)
    follower, machine = run.agent._followers[ONE], run.machine
    jobs = follower.step(machine.now, machine.now_ms(), most=2)
    assert jobs
    call = run.faults.call

    def no_table(name: str) -> None:
        if name == "catalog.get":
            raise unavailable()
        call(name)

    run.faults.call = no_table  # type: ignore[method-assign]
    machine.now += 10
    jobs += follower.step(machine.now, machine.now_ms(), most=2)
    assert isinstance(follower.progress.error, UnavailableError)
    run.faults.call = call  # type: ignore[method-assign]
    for _ in range(5):
        machine.now += 60
        jobs += follower.step(machine.now, machine.now_ms(), most=2)

    begins = [job.piece.first_offset for job in jobs]
    assert len(set(begins)) == len(begins)


def test_a_manifest_that_another_agent_has_moved_on_restarts_nothing_under_way(site: Site) -> None:
    """What is under way is counted: to begin anew would forget where its failure has to begin."""
    run = begin(site)
    run.happens.clear()
    run.agent._discover(run.machine.now)
    follower, machine = run.agent._followers[ONE], run.machine
    (job,) = follower.step(machine.now, machine.now_ms(), most=1)
    position = follower.course.position
    site.run(target_size=500)
    assert site.catalog.items[ONE].next_offset > position

    machine.now += 10
    assert follower.step(machine.now, machine.now_ms(), most=0) == []
    assert follower.course.position == position

    follower.failed(job.piece, UnavailableError("no answer"), machine.now)
    for _ in range(4):
        machine.now += 60
        assert follower.step(machine.now, machine.now_ms(), most=3) == []
    assert follower.progress.next_offset == site.catalog.items[ONE].next_offset


def test_the_item_is_read_a_few_times_a_second_at_most(site: Site) -> None:
    """However often a busy loop looks at a stream whose manifest has not followed."""
    run = begin(site)
    run.happens.clear()
    run.agent._discover(run.machine.now)
    follower, machine = run.agent._followers[ONE], run.machine
    assert follower.step(machine.now, machine.now_ms(), most=1)
    run.faults.names.clear()

    for _ in range(100):
        machine.now += 0.01
        follower.step(machine.now, machine.now_ms(), most=0)

    assert 1 <= run.faults.names.count("catalog.get") <= 6
