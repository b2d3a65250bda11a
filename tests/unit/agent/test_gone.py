"""A stream that is deleted in the broker: its tail is uploaded, and what was lost is told."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coldstream.agent.broker.committed import Known
from coldstream.agent.broker.gate import Gate
from coldstream.agent.broker.members import MembersOf, NoStreamError
from coldstream.agent.disk.history import CommittedHistory
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.telling.progress import Progress
from coldstream.errors import (
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import QueueName
from coldstream_devkit.claims import claim
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

from .conftest import Site, no_pause
from .disturbed import FailingFiles, Faults, Run
from .machine import EPOCH_MS, Machine
from .test_gate import ORDERS, Scripted
from .test_holes import tree

STREAM, OTHER = "__orders_1745252105682952932", "__other_1745252105682952933"
ORDERS_NAME, OTHER_NAME = QueueName("", "/", "orders"), QueueName("", "/", "other")


def known(vhost: str, queue: str) -> bool:
    """As `StreamMembers.knows`: a broker that has one stream."""
    return queue == "other"


class Proved:
    """As the gate: of what is there, so much is known to be committed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def refresh(self, stream: str, now: float) -> float:
        return now

    def limit(self, stream: str) -> int:
        return self._limit

    def known(self, stream: str) -> Known:
        return Known()

    def conclude(self, log: StreamLog, sure: int) -> None:
        pass

    def forget(self, stream: str) -> None:
        pass

    def warnings(self) -> list[str]:
        return []


class Deleted(Run):
    """Until the stream is followed no more."""

    def done(self, rows: list[Progress]) -> bool:
        return not self.agent._followers


def deleted(site: Site, at: int, **more: Any) -> Run:
    run = Deleted(site, most_looks=600, settings={"poll_seconds": 1}, **more)
    run.happens = {at: lambda: shutil.rmtree(site.data_dir / STREAM)}
    return run


def test_a_stream_that_is_deleted_while_s3_is_down_is_uploaded_when_it_is_back(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    local = site.local_chunks(STREAM)
    down = Faults(1, 8, lambda: UnavailableError("S3 does not answer"))

    rows = deleted(site, 20, faults=down, breaks=("store.put",)).go()

    assert site.remote_chunks(STREAM) == local
    assert rows[0].gone is not None
    assert rows[0].error is None
    assert "as much as this agent had seen of it" in rows[0].notices[-1]


def test_of_a_deleted_stream_nothing_is_uploaded_that_was_not_proved(site: Site) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    run = deleted(site, 20, committed=Proved(20))

    rows = run.go()

    assert site.catalog.items[STREAM].next_offset == 20
    assert rows[0].gone is not None
    assert (rows[0].gone.end, rows[0].gone.proved) == (30, 20)
    words = (
        "10 offsets more were seen in its files and not uploaded, 0 of them known to be committed"
    )
    assert words in rows[0].notices[-1]


@pytest.mark.parametrize("there", [True, False])
def test_what_a_removed_replica_has_not_uploaded_is_not_told_as_lost_where_others_have_it(
    site: Site, there: bool
) -> None:
    class Members:
        def earliest(self, stream: str) -> int | None:
            return self.lone(stream) or 0

        def lone(self, stream: str) -> bool:
            if not there:
                raise NoStreamError("no such stream", stream=stream)
            return False

    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)

    run = deleted(site, 20, committed=Proved(20))
    run.agent.members = Members()

    (row,) = run.go()

    assert "10 offsets more were seen in its files and not uploaded" in row.notices[-1]
    assert ("its other members upload what they have" in row.notices[-1]) is there


def test_a_replica_that_is_removed_is_no_trouble_where_a_newer_epoch_goes_on(site: Site) -> None:
    """Its agent stood by and had read no manifest: all of the stream was told as not uploaded, and
    the stream failed for good."""

    class Elsewhere(Proved):
        def known(self, stream: str) -> Known:
            return Known(writer=False)

    def removed() -> None:
        log = CommittedHistory(StreamLog(site.data_dir / STREAM), 30, epoch=1)
        claim(site.context(), STREAM, 7, log=log, pause=no_pause)
        shutil.rmtree(site.data_dir / STREAM)

    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10)
    assert site.run()[STREAM].error is None
    run = deleted(site, 20, committed=Elsewhere(30))
    run.happens = {20: removed}

    (row,) = run.go()

    assert row.error is None
    assert "a newer epoch has claimed the stream" in row.notices[-1]
    assert "not uploaded" not in row.notices[-1]


def test_of_a_deleted_stream_no_total_is_told_for_nobody_saw_what_came_last(site: Site) -> None:
    """Segments that came and went between two looks were denied: "all that its files had"."""
    directory, later = site.data_dir / STREAM, site.data_dir.parent / "later"
    write_stream(directory, messages=60, chunk_messages=10, segment_bytes=600)
    later.mkdir()
    begin = next(each for each in StreamLog(directory).segments() if each >= 30)
    above = [each for each in sorted(directory.iterdir()) if int(each.stem) >= begin]
    for each in above:
        each.rename(later / each.name)
    run = deleted(site, 20)

    def comes_and_goes() -> None:
        for each in above:
            (later / each.name).rename(each)
        shutil.rmtree(directory)

    run.happens = {20: comes_and_goes}

    (row,) = run.go()

    assert f"up to offset {begin}, as much as this agent had seen of it" in row.notices[-1]
    assert "what came after its last look at the files is not known" in row.notices[-1]


@pytest.mark.parametrize("order", ["newest first", "oldest first", "indexes first"])
def test_the_tail_of_a_stream_is_uploaded_whatever_order_a_deletion_goes_in(
    site: Site, order: str
) -> None:
    """It takes seconds, and looks come meanwhile. The broker does not know the stream any more."""
    directory = site.data_dir / STREAM
    write_stream(directory, messages=60, chunk_messages=10, segment_bytes=600)
    local, log, broker = site.local_chunks(STREAM), StreamLog(directory), Scripted()
    broker.headers[ORDERS] = log.header_at(50)
    settings = {"poll_seconds": 1, "flush_ms": 10**12, "target_size": 10**6}
    gate, machine = Gate(site.data_dir, broker), Machine()
    gate.clock = machine.monotonic
    run = Deleted(site, machine=machine, most_looks=600, settings=settings, committed=gate)
    paths = sorted(directory.iterdir(), reverse=order == "newest first")
    if order == "indexes first":
        paths.sort(key=lambda each: each.suffix != ".index")

    def deleted() -> None:
        broker.headers[ORDERS] = NotFoundError("no stream")

    run.happens = {20: deleted, 61: directory.rmdir}
    run.happens |= {30 + number: path.unlink for number, path in enumerate(paths)}
    (row,) = run.go()

    assert row.gone is not None
    assert (row.gone.end, row.gone.proved) == (60, 60)
    assert site.remote_chunks(STREAM) == local
    assert row.error is None


def test_a_claim_that_is_tried_while_a_deletion_goes_on_forgets_nothing_that_was_proved(
    site: Site,
) -> None:
    """S3 is down, so it is tried again and again; the gate's proof is lost with the newest file."""
    directory = site.data_dir / STREAM
    epochs = ((1, 0), (2, 30))
    write_stream(directory, messages=60, chunk_messages=5, segment_bytes=6000, epochs=epochs)
    local, log, broker = site.local_chunks(STREAM), StreamLog(directory), Scripted()
    broker.headers[ORDERS] = log.header_at(55)
    down = Faults(1, 10**9, lambda: UnavailableError("S3 does not answer"))
    gate, machine = Gate(site.data_dir, broker), Machine()
    gate.clock = machine.monotonic
    settings = {"poll_seconds": 1, "rescan_seconds": 1}
    run = Deleted(
        site, down, machine=machine, most_looks=1500, settings=settings, committed=gate,
        breaks=("store",),
    )  # fmt: skip

    def deleted() -> None:
        broker.headers[ORDERS] = NotFoundError("no stream")

    paths = sorted(directory.iterdir(), reverse=True)
    run.happens = {40: deleted, 130: directory.rmdir, 600: lambda: setattr(down, "length", 0)}
    run.happens |= {45 + 5 * number: path.unlink for number, path in enumerate(paths)}
    (row,) = run.go()

    assert site.remote_chunks(STREAM) == local
    assert row.gone is not None
    assert (row.gone.end, row.gone.proved) == (60, 60)


def test_a_claim_that_is_tried_again_in_its_epoch_takes_what_older_epochs_wrote_for_committed(
    site: Site,
) -> None:
    """A deletion takes the oldest first, and an epoch begins exactly with a segment."""
    directory = site.data_dir / STREAM
    write_stream(directory, messages=60, chunk_messages=5, segment_bytes=1500, epochs=((1, 0),))
    more = {"messages": 30, "chunk_messages": 5, "segment_bytes": 1500}
    write_stream(directory, start_offset=60, epochs=((2, 60),), **more)
    local, log, broker = site.local_chunks(STREAM), StreamLog(directory), Scripted()
    broker.headers[ORDERS] = log.header_at(85)
    down = Faults(1, 10**9, lambda: UnavailableError("S3 does not answer"))
    gate, machine = Gate(site.data_dir, broker), Machine()
    gate.clock = machine.monotonic
    run = Deleted(
        site, down, machine=machine, most_looks=900, committed=gate, breaks=("store",),
        settings={"poll_seconds": 1, "rescan_seconds": 1},
    )  # fmt: skip

    def deleted() -> None:
        broker.headers[ORDERS] = NotFoundError("no stream")

    paths = sorted(directory.iterdir())
    run.happens = {40: deleted, 260: directory.rmdir, 300: lambda: setattr(down, "length", 0)}
    run.happens |= {45 + 5 * number: path.unlink for number, path in enumerate(paths)}
    (row,) = run.go()

    assert site.remote_chunks(STREAM) == local
    assert row.gone is not None
    assert (row.gone.end, row.gone.proved) == (90, 90)


def test_where_the_rules_say_so_a_deleted_streams_tail_is_not_uploaded_and_told(
    site: Site,
) -> None:
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10, start_timestamp=EPOCH_MS)
    run = deleted(site, 40)
    run.agent.settings = replace(run.agent.settings, flush_ms=600_000, upload_tail=False)

    rows = run.go()

    assert site.catalog.items[STREAM].next_offset == 20, "one fragment was full"
    assert rows[0].gone is not None
    assert "10 offsets more were seen in its files and not uploaded" in rows[0].notices[-1]
    assert rows[0].error is None


def test_a_broker_whose_clock_is_a_day_behind_makes_no_flood_of_small_fragments(site: Site) -> None:
    first = write_stream(
        site.data_dir / STREAM,
        messages=10,
        chunk_messages=10,
        start_timestamp=EPOCH_MS - 86_400_000,
    ).next_offset
    run = Run(site, most_looks=120, settings={"flush_ms": 60_000, "poll_seconds": 1})

    def grow() -> None:
        nonlocal first
        chunk = build_chunk(first, 1, EPOCH_MS - 86_400_000 + first, [b"x"])
        append_chunks(site.data_dir / STREAM, [chunk])
        first += 1

    run.happens = dict.fromkeys(range(5, 100), grow)
    run.done = lambda rows: False  # type: ignore[method-assign]
    (row,) = run.go()

    assert row.error is None
    assert 2 <= row.fragments <= 5
    assert row.next_offset > 60


def test_a_stream_whose_directory_stays_behind_empty_is_gone_and_comes_back_as_another(
    site: Site,
) -> None:
    """The broker was killed between the last file and the directory, or something strange is in it,
    which the broker does not remove.
    """
    directory = site.data_dir / STREAM
    write_stream(directory, messages=30, chunk_messages=10)
    (directory / "strange").mkdir()
    local, told = site.local_chunks(STREAM), []
    run = Run(site, most_looks=400, settings={"poll_seconds": 1, "flush_ms": 10**12})
    report, run.done = run.agent.report, lambda rows: False  # type: ignore[method-assign]

    def noted(rows: list[Progress]) -> None:
        told.append((rows[0].gone, list(run.agent._followers), run.agent.held.unlinked_bytes))
        report(rows)

    def empty() -> None:
        for path in directory.glob("0*"):
            path.unlink()

    run.agent.report = noted
    run.happens = {
        20: empty,
        200: lambda: write_stream(directory, messages=10, chunk_messages=10, start_offset=30),
    }
    (row,) = run.go()

    gone, followed, unlinked = told[150]
    assert gone is not None
    assert gone.end == 30
    assert (followed, unlinked) == ([], 0)
    assert row.gone is None
    assert site.remote_chunks(STREAM).startswith(local)


def test_what_happens_in_a_directory_that_stayed_behind_lets_go_of_nothing_that_is_held(
    site: Site,
) -> None:
    """An operator takes out what is strange, and the directory a moment later; S3 is down."""
    directory = site.data_dir / STREAM
    write_stream(directory, messages=30, chunk_messages=10)
    (directory / "strange").mkdir()
    local = site.local_chunks(STREAM)
    down = Faults(1, 10**9, lambda: UnavailableError("S3 does not answer"))
    run = Deleted(site, down, most_looks=400, settings={"poll_seconds": 1}, breaks=("store.put",))

    def empty() -> None:
        for path in directory.glob("0*"):
            path.unlink()

    run.happens = {
        20: empty,
        150: (directory / "strange").rmdir,
        160: directory.rmdir,
        200: lambda: setattr(down, "length", 0),
    }
    (row,) = run.go()

    assert site.remote_chunks(STREAM) == local
    assert row.gone is not None
    assert row.gone.end == 30


@pytest.mark.parametrize("stays", [True, False])
def test_a_member_that_is_made_anew_lets_go_of_nothing_that_is_held_of_the_one_before(
    site: Site, stays: bool
) -> None:
    """S3 is down, and local retention has taken from the other members what is held here."""
    directory = site.data_dir / STREAM
    write_stream(directory, messages=30, chunk_messages=5, segment_bytes=1500)
    begin = StreamLog(directory).segments()[-1]
    down = Faults(1, 10**9, lambda: UnavailableError("S3 does not answer"))
    run = Run(site, down, most_looks=400, settings={"poll_seconds": 1}, breaks=("store.put",))
    run.agent.members = Older(begin)

    def lost() -> None:
        shutil.rmtree(directory)
        if stays:
            directory.mkdir()

    def made_anew() -> None:
        more = {"chunk_messages": 5, "segment_bytes": 1500, "start_timestamp": EPOCH_MS}
        write_stream(directory, messages=40 - begin, start_offset=begin, **more)

    run.happens = {20: lost, 150: made_anew, 200: lambda: setattr(down, "length", 0)}
    run.done = lambda rows: False  # type: ignore[method-assign]
    (row,) = run.go()

    assert row.holes == []
    assert row.gone is None
    assert [each[2] for each in tree(site)] == ["FRAGMENT"] * len(tree(site))
    assert site.catalog.items[STREAM].next_offset == 40


@dataclass
class Broker:
    """What it answers of the members of a queue."""

    earliest: Callable[[str, str], int | None]
    knows: Callable[[str, str], bool]

    def lone(self, vhost: str, queue: str) -> bool:
        raise NotFoundError("no stream")


class Older:
    """Other members, whose logs begin at `first`."""

    def __init__(self, first: int) -> None:
        self._first = first

    def earliest(self, stream: str) -> int | None:
        return self._first

    def lone(self, stream: str) -> bool:
        del stream
        return False


def deleted_with_a_gap(site: Site, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Run:
    """Uploads hang, and more segments come than may be held of one stream; then it is deleted."""
    monkeypatch.setattr("coldstream.agent.disk.held._OF_ONE_STREAM", 4)
    directory, machine = site.data_dir / STREAM, Machine()
    write_stream(directory, messages=20, chunk_messages=10)
    settings = {"poll_seconds": 1, "rescan_seconds": 5.0, **settings}
    run = Deleted(site, machine=machine, most_looks=900, settings=settings)

    def grow() -> None:
        machine.held = True
        more = {"messages": 200, "chunk_messages": 10, "segment_bytes": 10_000}
        write_stream(directory, start_offset=20, **more)

    def retire() -> None:
        for path in sorted(directory.glob("*.segment"))[:-2]:
            path.with_suffix(".index").unlink()
            path.unlink()

    run.happens = {
        20: grow,
        60: retire,
        70: lambda: shutil.rmtree(directory),
        100: lambda: setattr(machine, "held", False),
    }
    return run


def test_behind_a_gap_amid_what_is_held_of_a_deleted_stream_the_rest_is_uploaded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gap is a hole, and no damage."""
    (row,) = deleted_with_a_gap(site, monkeypatch, last_copy=True).go()

    assert row.error is None
    assert row.holes == [(50, 210)]
    assert tree(site) == [(0, 50, "FRAGMENT"), (50, 210, "HOLE"), (210, 220, "FRAGMENT")]
    assert "as much as this agent had seen of it" in row.notices[-1]


@pytest.mark.parametrize("again", ["never", "empty", "written"])
def test_a_deleted_stream_with_a_gap_waits_for_no_member_that_is_gone_as_well(
    site: Site, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """What is held of it is nowhere else, and would end with the agent. Its queue may be declared
    again: the members of that one have nothing of it, though their logs begin at 0. Which directory
    is whose is known some time after the first message.
    """
    run = deleted_with_a_gap(site, monkeypatch)
    queues, asked = {STREAM: ORDERS_NAME, OTHER: OTHER_NAME}, []

    def ask(vhost: str, queue: str) -> int | None:
        asked.append(run.machine.now)
        if again == "written":
            return 0
        if again == "empty":
            raise UnavailableError("a new stream has no message yet")
        raise NotFoundError("no stream")

    if again != "never":
        run.happens[150] = lambda: queues.update({"__orders_1745252999999999999": queues[STREAM]})
    run.agent.members = MembersOf(Broker(ask, known), queues)
    (row,) = run.go()

    assert row.error is None
    assert row.holes == [(50, 210)]
    assert site.catalog.items[STREAM].next_offset == 220
    assert run.machine.now > 69 + 300, "at first the broker may boot"
    assert "as much as this agent had seen of it" in row.notices[-1]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ENOENT])
def test_of_a_deleted_stream_nothing_is_let_go_because_a_file_cannot_be_read_for_a_moment(
    site: Site, code: int
) -> None:
    """DynamoDB does not answer, so nothing of it is under way. ENOENT: what takes more of the disk
    than it may is let go between a look at names and one at a file.
    """
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10)
    local = site.local_chunks(STREAM)
    down = Faults(1, 10**9, lambda: UnavailableError("DynamoDB does not answer"))
    disk = Faults(10**9, 8, lambda: OSError(code, os.strerror(code)), breaks=("files",))
    run = deleted(site, 20, faults=down, breaks=("catalog",))
    run.agent.held._files = FailingFiles(disk)
    run.happens[30] = lambda: setattr(disk, "first", disk.calls + 1)
    run.happens[60] = lambda: setattr(down, "length", 0)
    (row,) = run.go()

    assert disk.calls > disk.first + disk.length
    assert site.remote_chunks(STREAM) == local
    assert row.gone is not None
    assert row.gone.end == 60


def test_of_a_deleted_stream_nothing_is_let_go_because_the_budget_takes_a_file_just_now(
    site: Site,
) -> None:
    """Between a look at the names that are held and one into a file."""
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10)
    local = site.local_chunks(STREAM)
    down = Faults(1, 10**9, lambda: UnavailableError("DynamoDB does not answer"))
    run = deleted(site, 20, faults=down, breaks=("catalog",))
    used, taken = run.agent.held._used, [0] * 8

    def just_taken() -> None:
        run.agent.held._used = lambda *file: None if taken and not taken.pop() else used(*file)  # type: ignore[method-assign]

    run.happens |= {30: just_taken, 60: lambda: setattr(down, "length", 0)}
    (row,) = run.go()

    assert not taken
    assert site.remote_chunks(STREAM) == local
    assert row.gone is not None
    assert row.gone.end == 60


@pytest.mark.parametrize(
    "kind", [PermissionDeniedError, UnknownOutcomeError, InvalidInputError, MemoryError]
)
def test_of_a_deleted_stream_nothing_is_let_go_because_the_store_refuses_for_a_moment(
    site: Site, kind: type[Exception]
) -> None:
    """Credentials have run out, or memory has; what is held is nowhere else."""
    write_stream(site.data_dir / STREAM, messages=60, chunk_messages=10)
    local = site.local_chunks(STREAM)
    down = Faults(1, 10**9, lambda: kind("for a moment"))
    run = deleted(site, 20, faults=down, breaks=("catalog",))
    run.happens[60] = lambda: setattr(down, "length", 0)
    (row,) = run.go()

    assert site.remote_chunks(STREAM) == local
    assert row.error is None


def test_when_the_store_comes_back_other_nodes_have_time_to_upload_what_is_missing_here(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node holds files of it. Another agent may have what this one had to let go, and comes
    to it when the store answers, as this one does: a hole at once would hide what it has.
    """
    run = deleted_with_a_gap(site, monkeypatch)
    run.happens[500], back = run.happens.pop(100), []
    run.happens[499] = lambda: back.append(run.machine.now)

    def ask(vhost: str, queue: str) -> int | None:
        raise NotFoundError("no stream")

    run.agent.members = MembersOf(Broker(ask, known), {STREAM: ORDERS_NAME, OTHER: OTHER_NAME})
    (row,) = run.go()

    assert row.holes == [(50, 210)]
    assert run.machine.now > back[0] + 300


def test_a_broker_that_knows_none_of_its_streams_has_deleted_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node was taken out of the cluster and reset, or boots with an empty volume: all
    directories are gone, and the other members have what this one has let go.
    """
    run = deleted_with_a_gap(site, monkeypatch)

    def ask(vhost: str, queue: str) -> int | None:
        raise NotFoundError("no stream")

    queues = {STREAM: ORDERS_NAME, OTHER: OTHER_NAME}
    run.agent.members = MembersOf(Broker(ask, lambda *_: False), queues)
    (row,) = run.go()

    assert "no stream" in str(row.error)
    assert row.holes == []
    assert not any(key.endswith(".hole") for key in site.store.objects)


def test_a_stream_that_is_there_waits_though_its_broker_does_not_know_it(site: Site) -> None:
    """It boots yet."""
    write_stream(site.data_dir / STREAM, messages=30, chunk_messages=10, start_offset=10)
    run = Run(site, most_looks=900, settings={"poll_seconds": 1})

    def ask(vhost: str, queue: str) -> int | None:
        raise NotFoundError("no stream")

    queues = {STREAM: ORDERS_NAME, OTHER: OTHER_NAME}
    run.agent.members = MembersOf(Broker(ask, known), queues)
    run.done = lambda rows: False  # type: ignore[method-assign]
    (row,) = run.go()

    assert "no stream" in str(row.error)
    assert not any(key.endswith(".hole") for key in site.store.objects)


def test_of_a_directory_whose_queue_nobody_knows_no_member_is_asked() -> None:
    """Who asks for no queue, or for another's, may hear that nothing older is left."""

    def ask(vhost: str, queue: str) -> int | None:
        raise AssertionError((vhost, queue))

    members = MembersOf(Broker(ask, known), {OTHER: OTHER_NAME})

    for question in (members.earliest, members.lone):
        with pytest.raises(UnavailableError, match="nobody knows which queue"):
            question(STREAM)
