"""The gate: only what the local broker has delivered, and the files have too, is committed."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldstream.agent.broker.gate import Gate
from coldstream.agent.disk.files import DISK, Disk
from coldstream.agent.disk.held import Held
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.answers import LogInError, NoMemberError
from coldstream.broker.limits import Limits
from coldstream.broker.management import Partition, StreamQueue
from coldstream.errors import (
    ColdstreamError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.chunk import ChunkType
from coldstream_devkit.generator import append_chunks, build_chunk, write_stream

STREAM = "__orders_1795444148462839326"
ORDERS = StreamQueue("/", "orders")


@dataclass
class Scripted:
    """A broker that delivers what a test says."""

    queues: list[StreamQueue] = field(default_factory=lambda: [ORDERS])
    headers: dict[StreamQueue, bytes | Exception | None] = field(default_factory=dict)
    number: int = 0
    logs: dict[StreamQueue, StreamLog] = field(default_factory=dict)
    leader: bool | None = None
    supers: dict[tuple[str, str], Partition] = field(default_factory=dict)
    asked: int = 0

    def last_header(self, vhost: str, queue: str) -> bytes | None:
        self.asked += 1
        found = self.headers.get(StreamQueue(vhost, queue))
        if isinstance(found, Exception):
            raise found
        return found

    def header_at(self, vhost: str, queue: str, offset: int) -> bytes | None:
        self.asked += 1
        return self.logs[StreamQueue(vhost, queue)].header_at(offset)

    def leads(self, vhost: str, queue: str) -> bool | None:
        return self.leader

    def keep_up(self) -> None:
        pass

    def streams(self) -> Sequence[StreamQueue]:
        return self.queues

    def super_streams(self) -> dict[tuple[str, str], Partition]:
        return self.supers

    def generation(self) -> int:
        return self.number

    def close(self) -> None:
        pass


@dataclass
class Scene:
    """A data directory, a scripted broker, a gate between them, and a clock."""

    data_dir: Path
    broker: Scripted = field(default_factory=Scripted)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.gate = Gate(self.data_dir, self.broker, cluster="c", clock=lambda: self.now)

    def write(self, messages: int, stream: str = STREAM, **more: object) -> StreamLog:
        write_stream(self.data_dir / stream, messages=messages, chunk_messages=10, **more)  # type: ignore[arg-type]
        return StreamLog(self.data_dir / stream)

    def delivers(self, log: StreamLog, chunk_id: int, queue: StreamQueue = ORDERS) -> None:
        header = log.header_at(chunk_id)
        assert header is not None
        self.broker.headers[queue] = header

    def look(self, *streams: str, after: float = 1.0) -> int:
        self.now += after
        for each in streams or (STREAM,):
            self.gate.refresh(each, self.now)
        return self.gate.limit(STREAM)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_everything_up_to_the_chunk_that_the_broker_delivers_is_committed(scene: Scene) -> None:
    scene.delivers(scene.write(100), 60)

    assert scene.gate.limit(STREAM) == 0
    assert scene.look() == 70
    assert scene.gate.names[STREAM] == QueueName("c", "/", "orders")
    assert scene.gate.warnings() == []


def test_a_stale_tail_with_the_same_chunk_ids_proves_nothing(scene: Scene, tmp_path: Path) -> None:
    """Files of a former leader: the same ids, another epoch; statistics would have passed it."""
    stale = tmp_path / "elsewhere"
    write_stream(stale / STREAM, messages=100, chunk_messages=10, epochs=((1, 0), (2, 60)))
    scene.write(100)
    scene.delivers(StreamLog(stale / STREAM), 90)

    assert scene.look() == 0
    assert "of 1 streams nothing new is proved" in scene.gate.warnings()[0]


def test_a_chunk_that_is_not_in_the_files_yet_proves_nothing_until_it_is(scene: Scene) -> None:
    log = scene.write(100)
    chunk = build_chunk(100, 1, 1_790_000_001_000, [b"x"] * 5)
    scene.broker.headers[ORDERS] = chunk[:48]
    assert scene.look() == 0

    append_chunks(log.directory, [chunk])

    assert scene.look(after=40.0) == 105


def test_files_that_are_rewritten_under_the_look_prove_nothing(scene: Scene) -> None:
    log = scene.write(100)
    scene.delivers(log, 90)
    path = log.segment_path(0)
    data = bytearray(path.read_bytes())
    data[-30:] = bytes(30)
    path.write_bytes(data[:-200])

    assert scene.look() == 0


def test_of_queues_with_the_same_directory_name_the_one_whose_chunks_are_there_is_it(
    scene: Scene,
) -> None:
    dotted, plain = StreamQueue("/", "a.b"), StreamQueue("/", "a_b")
    first, second = "__a_b_1", "__a_b_2"
    scene.broker.queues = [dotted, plain]
    scene.delivers(scene.write(50, first, seed=1), 40, plain)
    scene.delivers(scene.write(50, second, seed=2), 40, dotted)

    scene.look(first, second)

    assert (scene.gate.name(first), scene.gate.name(second)) == (
        QueueName("c", "/", "a_b"),
        QueueName("c", "/", "a.b"),
    )


def test_after_a_reconnect_nothing_counts_until_it_is_proved_again(scene: Scene) -> None:
    log = scene.write(100)
    scene.delivers(log, 90)
    assert scene.look() == 100

    scene.broker.number += 1
    scene.broker.headers[ORDERS] = UnavailableError("the broker does not answer")
    assert scene.look() == 0
    scene.delivers(log, 90)

    assert scene.look(after=40.0) == 100


@pytest.mark.parametrize("tail", [60, 100, 120])
def test_what_is_written_in_the_place_of_what_was_proved_does_not_count(
    scene: Scene, tail: int
) -> None:
    """The cluster has lost committed chunks, and this node's broker has lived through it."""
    log = scene.write(100)
    scene.delivers(log, 90)
    assert scene.look() == 100
    scene.broker.headers[ORDERS] = NoMemberError("there is no running member on this node")
    scene.write(tail, epochs=((1, 0), (2, 50)))

    assert scene.look() == 0
    assert scene.look() == 0, "nor while the broker is not asked"
    scene.delivers(log, 50)

    assert scene.look(after=40.0) == 60


def test_what_was_proved_counts_while_retention_takes_it_and_the_broker_does_not_answer(
    scene: Scene,
) -> None:
    log = scene.write(100)
    scene.delivers(log, 90)
    assert scene.look() == 100
    scene.broker.headers[ORDERS] = UnavailableError("the broker at x does not answer")
    append_chunks(log.directory, [build_chunk(100, 1, 1_790_000_001_000, [b"x"] * 5)])

    assert scene.look() == 100


def test_what_was_proved_stays_so_while_the_stream_is_deleted(scene: Scene) -> None:
    log = scene.write(100)
    scene.delivers(log, 90)
    scene.look()
    scene.broker.headers[ORDERS] = NotFoundError("no stream")
    append_chunks(log.directory, [build_chunk(100, 1, 1_790_000_001_000, [b"x"] * 5)])

    assert scene.look() == 100


def test_a_stream_that_stands_still_is_not_asked_about_again(scene: Scene) -> None:
    scene.delivers(scene.write(100), 90)
    scene.look()
    asked = scene.broker.asked

    for _ in range(100):
        scene.look()

    assert scene.broker.asked == asked


def test_a_tracking_chunk_at_the_end_waits_for_the_next_message_and_is_asked_about_ever_less(
    scene: Scene,
) -> None:
    log = scene.write(100)
    append_chunks(
        log.directory,
        [build_chunk(100, 1, 1_790_000_001_000, [b"\0\0\0"], chunk_type=ChunkType.TRACKING_DELTA)],
    )
    scene.delivers(log, 90)
    assert scene.look() == 100
    asked = scene.broker.asked

    for _ in range(120):
        scene.look(after=0.5)
    assert scene.broker.asked - asked <= 8

    append_chunks(log.directory, [build_chunk(101, 1, 1_790_000_002_000, [b"x"] * 4)])
    scene.delivers(log, 101)
    assert scene.look() == 105


def test_a_broker_that_does_not_answer_is_asked_ever_less_and_told_of(scene: Scene) -> None:
    scene.write(100)
    scene.broker.headers[ORDERS] = UnavailableError("the broker at x does not answer")

    for _ in range(120):
        scene.look(after=0.5)

    assert scene.broker.asked <= 11
    assert "the broker at x does not answer" in scene.gate.warnings()[0]


def test_a_stream_of_which_all_is_proved_has_no_trouble_once_the_broker_answers_again(
    scene: Scene,
) -> None:
    log = scene.write(100)
    scene.delivers(log, 90)
    scene.look()
    append_chunks(log.directory, [build_chunk(100, 1, 1_790_000_001_000, [b"x"] * 5)])
    scene.broker.headers[ORDERS] = UnavailableError("the broker at x does not answer")
    scene.look()
    assert scene.gate.known(STREAM).trouble == "the broker at x does not answer"

    with log.index_path(0).open("r+b") as index:
        index.truncate(8 + 29 * 10)  # a new epoch has cut it off again
    scene.look(after=40.0)

    assert scene.gate.known(STREAM).trouble == ""
    assert scene.gate.warnings() == []


def test_a_stream_without_a_running_member_keeps_no_other_one_waiting(scene: Scene) -> None:
    invoices, other = StreamQueue("/", "invoices"), "__invoices_1795444148462839327"
    scene.broker.queues.append(invoices)
    scene.delivers(scene.write(100), 60)
    scene.write(100, other)
    scene.broker.headers[invoices] = NoMemberError("the broker has no running member")

    for _ in range(5):
        scene.look(other)
        assert scene.look(after=0.0) == 70
    assert "of 1 streams nothing new is proved" in scene.gate.warnings()[0]


def test_a_directory_of_no_queue_is_told_of(scene: Scene) -> None:
    scene.write(100, "__other_17")

    scene.gate.refresh("__other_17", scene.now)

    assert scene.gate.limit("__other_17") == 0
    assert "the user may not see its virtual host (__other_17)" in scene.gate.warnings()[0]


def test_who_the_writer_is_is_asked_with_a_proof_and_kept_while_nobody_can_say(
    scene: Scene,
) -> None:
    log = scene.write(100)
    scene.delivers(log, 60)
    assert scene.gate.known(STREAM).writer, "nobody has been asked"
    assert scene.gate.known(STREAM).epoch == 0, "nothing is proved"

    scene.broker.leader = False
    scene.look()
    assert not scene.gate.known(STREAM).writer
    assert scene.gate.known(STREAM).epoch == 1

    scene.broker.leader = None
    scene.delivers(log, 80)
    scene.look(after=60)
    assert scene.gate.limit(STREAM) == 90
    assert not scene.gate.known(STREAM).writer

    scene.broker.leader = True
    scene.delivers(log, 90)
    scene.look(after=60)
    assert scene.gate.known(STREAM).writer


def test_where_another_node_uploads_the_broker_is_asked_less_often(scene: Scene) -> None:
    log = scene.write(50)
    scene.delivers(log, 40)
    scene.broker.leader = False
    scene.look()

    asked = scene.broker.asked
    for number in range(8):
        append_chunks(log.directory, [build_chunk(50 + number, 1, 1_790_000_000_000, [b"x"])])
        scene.delivers(log, 50 + number)
        scene.look(after=1)

    assert scene.broker.asked - asked <= 2
    assert not scene.gate.known(STREAM).whole
    scene.look(after=10)
    assert scene.gate.known(STREAM).whole


def test_what_local_retention_keeps_follows_the_policies(scene: Scene) -> None:
    scene.delivers(scene.write(100), 60)
    scene.broker.queues = [StreamQueue("/", "orders", Limits(5000, None))]
    scene.broker.supers = {("/", "orders"): Partition("all-orders", "eu")}
    scene.look()

    known = scene.gate.known(STREAM)
    assert (known.max_bytes, known.max_age_ms, known.super_stream) == (5000, None, "all-orders")

    scene.broker.queues = [StreamQueue("/", "orders", Limits(5000, 60_000))]
    scene.look(after=301)
    assert scene.gate.known(STREAM).max_age_ms == 60_000


def test_the_name_of_a_new_partition_says_its_super_stream_at_once(scene: Scene) -> None:
    scene.broker.queues = [StreamQueue("/", "other")]
    scene.look()
    scene.delivers(scene.write(100), 60)
    scene.broker.queues = [StreamQueue("/", "other"), StreamQueue("/", "orders")]
    scene.broker.supers = {("/", "orders"): Partition("all-orders", "eu")}

    scene.look(after=10)

    assert scene.gate.name(STREAM) == QueueName("c", "/", "orders", "all-orders", "eu")


def test_partitions_are_asked_for_again_soon_where_the_broker_did_not_tell_of_them(
    scene: Scene,
) -> None:
    """An exchange that was deleted between two answers is enough; the names are told once."""
    scene.delivers(scene.write(100), 60)

    def supers() -> dict[tuple[str, str], Partition]:
        scene.broker.super_streams = lambda: scene.broker.supers  # type: ignore[method-assign]
        raise NotFoundError("no such exchange")

    scene.broker.supers = {("/", "other"): Partition("all", "")}
    scene.look()
    scene.broker.queues = [ORDERS, StreamQueue("/", "new")]
    scene.broker.supers = {("/", "orders"): Partition("all-orders", "eu")}
    scene.broker.super_streams = supers  # type: ignore[method-assign]
    scene.write(100, "__new_17")
    scene.gate.refresh("__new_17", scene.now + 10)
    scene.gate.refresh("__new_17", scene.now + 30)

    assert scene.gate.known(STREAM).super_stream == "all-orders"


def test_a_management_api_that_hangs_keeps_only_the_one_waiting_who_asks_it(scene: Scene) -> None:
    log = scene.write(100)
    scene.delivers(log, 60)
    assert scene.look() == 70
    scene.write(50, "__new_17")
    scene.write(50, "__newer_18")
    asked, answers = threading.Event(), threading.Event()

    def hangs() -> list[StreamQueue]:
        asked.set()
        assert answers.wait(60)
        return [ORDERS, StreamQueue("/", "new")]

    scene.broker.streams = hangs  # type: ignore[method-assign]
    scene.now += 10
    asker = threading.Thread(target=scene.gate.refresh, args=("__new_17", scene.now))
    asker.start()
    try:
        assert asked.wait(60)
        scene.delivers(log, 90)
        # Another thread, so that a gate that waits fails the test and does not hang it.
        others = ThreadPoolExecutor(1).submit(scene.look, STREAM, "__newer_18", after=6)
        assert others.result(60) == 100
        assert scene.gate.known("__newer_18").trouble == "", "its name is only being asked for"
    finally:
        answers.set()
        asker.join()


def test_a_first_answer_that_does_not_come_is_waited_for_no_longer_than_it_may_take(
    scene: Scene,
) -> None:
    """Every look waited for it, for ever, and nobody was told."""
    scene.write(100)
    scene.write(50, "__new_17")
    asked, answers = threading.Event(), threading.Event()

    def hangs() -> list[StreamQueue]:
        asked.set()
        assert answers.wait(120)
        return [ORDERS]

    scene.broker.streams = hangs  # type: ignore[method-assign]
    asker = threading.Thread(target=scene.gate.refresh, args=("__new_17", scene.now))
    asker.start()
    try:
        assert asked.wait(60)
        # Another thread, so that a gate that waits fails the test and does not hang it.
        ThreadPoolExecutor(1).submit(scene.look, after=20).result(60)
        assert "its answer does not come" in scene.gate.known(STREAM).trouble
    finally:
        answers.set()
        asker.join()
    scene.delivers(StreamLog(scene.data_dir / STREAM), 60)
    assert scene.look() == 70
    assert scene.gate.known(STREAM).trouble == ""


def test_a_management_api_that_fails_is_not_asked_again_at_once(scene: Scene) -> None:
    calls: list[float] = []

    def fails() -> list[StreamQueue]:
        calls.append(scene.now)
        raise UnavailableError("the management API does not answer")

    scene.broker.streams = fails  # type: ignore[method-assign]
    scene.write(50)
    for _ in range(60):
        scene.look()

    assert scene.gate.known(STREAM).trouble == "the management API does not answer"
    assert 2 <= len(calls) <= 5


@pytest.mark.parametrize("tracked", [False, True])
def test_a_stream_without_a_message_costs_the_broker_no_question_until_it_has_one(
    scene: Scene, tracked: bool
) -> None:
    """A broker is silent for a second about each: a hundred of them kept all others waiting."""
    empty = "__empty_1795444148462839327"
    scene.broker.queues.append(StreamQueue("/", "empty"))
    scene.delivers(scene.write(100), 60)
    log = scene.write(0, empty)
    if tracked:
        delta = build_chunk(
            0, 1, 1_790_000_001_000, [b"\0\0\0"], chunk_type=ChunkType.TRACKING_DELTA
        )
        append_chunks(log.directory, [delta])

    for _ in range(100):
        scene.look(empty)

    assert scene.broker.asked == 0
    assert scene.gate.warnings() == []
    first = 1 if tracked else 0
    append_chunks(log.directory, [build_chunk(first, 1, 1_790_000_002_000, [b"x"] * 4)])
    scene.delivers(log, first, StreamQueue("/", "empty"))
    scene.look(empty)
    assert scene.gate.limit(empty) == first + 4


def test_a_broker_that_hangs_keeps_one_stream_waiting_and_not_each_after_the_other(
    scene: Scene,
) -> None:
    """The agent's own thread asks for names: of sixty streams it would be silent for minutes."""
    streams = [f"__orders_{number}" for number in range(60)]
    for each in streams:
        scene.write(10, each)

    class Hanging(Scripted):
        def last_header(self, vhost: str, queue: str) -> bytes | None:
            scene.now += 10
            return Scripted.last_header(self, vhost, queue)

    scene.broker = scene.gate.broker = Hanging()
    scene.gate = Gate(scene.data_dir, scene.broker, clock=lambda: scene.now)
    scene.broker.headers[ORDERS] = UnavailableError("the broker at x does not answer")

    for each in streams:
        scene.gate.ask(each)

    assert scene.broker.asked == 1


def test_a_broker_that_does_not_say_where_writers_are_keeps_one_stream_waiting_and_not_each(
    scene: Scene,
) -> None:
    """3.10.8 is silent about them for as long as it waits for a node that has frozen."""
    streams = [f"__orders{number}_1795444148462839326" for number in range(60)]
    asked: list[float] = []

    class Silent(Scripted):
        def leads(self, vhost: str, queue: str) -> bool | None:
            asked.append(scene.now)
            scene.now, self.number = scene.now + 10, self.number + 1
            raise UnavailableError("the broker at x does not answer METADATA")

    broker = scene.broker = scene.gate.broker = Silent()
    broker.queues[:] = [StreamQueue("/", f"orders{number}") for number in range(60)]
    scene.gate = Gate(scene.data_dir, broker, clock=lambda: scene.now)
    for name, queue in zip(streams, broker.queues, strict=True):
        scene.delivers(scene.write(10, name), 0, queue)
    began = scene.now

    for _ in range(2):
        scene.look(*streams)

    assert scene.now - began < 30
    assert len(asked) == 1
    assert [scene.gate.limit(each) for each in streams] == [10] * 60
    log = StreamLog(scene.data_dir / streams[1])
    append_chunks(log.directory, [build_chunk(10, 1, 1_790_000_002_000, [b"x"] * 4)])
    scene.delivers(log, 10, broker.queues[1])
    scene.look(*streams, after=60)
    assert len(asked) == 2


def test_a_broker_that_does_not_let_the_user_in_is_not_tried_for_every_stream(
    scene: Scene,
) -> None:
    streams = [f"__orders_{number}" for number in range(60)]
    for each in streams:
        scene.write(10, each)
    scene.broker.headers[ORDERS] = LogInError("the broker answers with code 8 (user 'tier')")

    scene.look(*streams)

    assert scene.broker.asked == 1
    assert "code 8 (user 'tier')" in scene.gate.warnings()[0]


def test_a_directory_is_compared_with_those_queues_only_whose_name_may_be_in_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with each, ten thousand streams took an hour of a core after every start."""
    scene.broker.queues = [StreamQueue("/", f"orders.{number}") for number in range(3000)]
    compared: list[str] = []
    fits = QueueName.fits

    def counted(name: QueueName, stream: str) -> bool:
        compared.append(name.queue)
        return fits(name, stream)

    monkeypatch.setattr(QueueName, "fits", counted)
    stream = "__orders_2999_1795444148462839326"
    scene.delivers(scene.write(100, stream), 90, scene.broker.queues[-1])

    scene.look(stream)

    assert scene.gate.name(stream) == QueueName("c", "/", "orders.2999")
    assert compared == ["orders.2999"]


def test_why_a_stream_cannot_be_asked_for_is_told_as_the_broker_says_it(scene: Scene) -> None:
    scene.write(100)
    scene.broker.headers[ORDERS] = NotFoundError("answers OPEN with code 12 (vhost 'closed')")

    scene.look()

    assert "code 12 (vhost 'closed')" in scene.gate.warnings()[0]


def test_one_run_does_not_wait_for_a_stream_that_has_no_message(scene: Scene) -> None:
    scene.write(0)
    paused: list[float] = []
    scene.gate.pause = paused.append
    ticks = iter(range(100, 200))
    scene.gate.clock = lambda: float(next(ticks))

    with scene.gate.looking(once=True):
        pass

    assert paused == []


def test_a_namesake_that_is_another_directory_proves_nothing_of_a_tail_that_is_not_committed(
    scene: Scene,
) -> None:
    """Both get one message in one millisecond, and the leader of one of them is cut off."""
    dotted, plain = StreamQueue("/", "a.b"), StreamQueue("/", "a_b")
    scene.broker.queues = [dotted, plain]
    logs = [scene.write(10, f"__a_b_{n}", start_timestamp=1_790_000_000_000 + n) for n in (1, 2)]
    for log, queue in zip(logs, (dotted, plain), strict=True):
        scene.delivers(log, 0, queue)
    scene.look("__a_b_1", "__a_b_2")
    for log in logs:
        append_chunks(log.directory, [build_chunk(10, 1, 1_790_000_001_000, [b"x"] * 5)])
    scene.delivers(logs[1], 10, plain)

    for _ in range(3):
        scene.look("__a_b_1", "__a_b_2", after=40.0)

    assert (scene.gate.limit("__a_b_1"), scene.gate.limit("__a_b_2")) == (10, 15)
    assert scene.gate.name("__a_b_1") == QueueName("c", "/", "a.b")


@pytest.mark.parametrize("error", [NoMemberError, PermissionDeniedError, NotFoundError])
@pytest.mark.parametrize("settled", [True, False])
def test_a_namesake_that_cannot_be_asked_stops_nothing(
    scene: Scene, error: type[ColdstreamError], settled: bool
) -> None:
    dotted, plain, stream = StreamQueue("/", "a.b"), StreamQueue("/", "a_b"), "__a_b_1"
    scene.broker.queues = [dotted, plain] if settled else [plain, dotted]
    scene.broker.headers[plain] = error("not for us")
    log = scene.write(10, stream)
    if settled:
        scene.delivers(log, 0, dotted)
        scene.look(stream)
    append_chunks(log.directory, [build_chunk(10, 1, 1_790_000_001_000, [b"x"] * 5)])
    scene.look(stream, after=40.0)
    scene.delivers(log, 10, dotted)
    scene.look(stream, after=40.0)

    assert scene.gate.limit(stream) == 15
    assert scene.gate.name(stream) == QueueName("c", "/", "a.b")


@pytest.mark.parametrize("gone", [60, 90])
def test_of_a_stream_that_is_gone_what_was_proved_last_counts_where_it_is_held(
    scene: Scene, tmp_path: Path, gone: int
) -> None:
    """A deletion goes in any order: without the newest files the last proof does not hold."""
    held = tmp_path / "held"
    log = scene.write(100, segment_bytes=600)
    scene.delivers(log, 90)
    assert scene.look() == 100
    shutil.copytree(log.directory, held / STREAM)
    scene.broker.headers[ORDERS] = NotFoundError("no stream")
    log.segment_path(gone).unlink()
    log.index_path(gone).unlink()
    scene.look()

    scene.gate.conclude(StreamLog(held / STREAM), 0)

    assert scene.gate.limit(STREAM) == 100


def test_of_a_stream_that_is_gone_nothing_counts_where_another_history_is_held(
    scene: Scene, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    log = scene.write(100)
    scene.delivers(log, 90)
    assert scene.look() == 100
    scene.broker.headers[ORDERS] = NoMemberError("there is no running member on this node")
    scene.write(120, epochs=((1, 0), (2, 50)))
    assert scene.look() == 0
    shutil.copytree(log.directory, held / STREAM)

    scene.gate.conclude(StreamLog(held / STREAM), 100)

    assert scene.gate.limit(STREAM) == 0


def test_where_the_chunk_that_proved_it_is_not_held_what_was_sure_of_the_files_counts(
    scene: Scene, tmp_path: Path
) -> None:
    """A tail that was cut off may be held below what was proved later."""
    held = tmp_path / "held" / STREAM
    log = scene.write(100, segment_bytes=600, epochs=((1, 0), (2, 90)))
    scene.delivers(log, 90)
    assert scene.look() == 100
    shutil.copytree(log.directory, held)
    StreamLog(held).segment_path(90).unlink()
    StreamLog(held).index_path(90).unlink()

    scene.gate.conclude(StreamLog(held), 40)

    assert scene.gate.limit(STREAM) == 40


@dataclass
class Member:
    """A directory of which files are held, and a gate that asks about it."""

    scene: Scene

    def __post_init__(self) -> None:
        self.held = Held(DISK, budget=2**30, most=100)
        self.directory = self.scene.data_dir / STREAM
        self.disk = StreamLog(self.directory)
        self.log = StreamLog(self.directory, self.held)

    def append(self, begin: int, end: int, epoch: int, *, roll: bool = False) -> None:
        body = bytes([64 + epoch]) * 50
        chunks = [
            build_chunk(each, epoch, 1_790_000_000_000, [body] * 10)
            for each in range(begin, end, 10)
        ]
        append_chunks(self.directory, chunks, roll=roll)

    def cut_off(self, first: int) -> None:
        self.disk.index_path(first).unlink()
        self.disk.segment_path(first).unlink()

    def proved(self, chunk_id: int) -> int:
        """A look begins."""
        self.scene.delivers(self.disk, chunk_id)
        return self.scene.look(after=40)

    def keep(self, proved: int) -> None:
        """And it holds."""
        self.held.keep(self.directory, self.log.segments(), 0, proved=proved)

    def left(self) -> list[tuple[int, int]]:
        """Chunks that count once the stream is deleted: offset, epoch."""
        shutil.rmtree(self.directory)
        self.scene.gate.conclude(self.log, self.held.sure(self.directory))
        limit = self.scene.gate.limit(STREAM)
        return [
            (each.chunk_id, each.epoch)
            for each in self.log.chunks_between(0, 1000, committed=limit)
        ]


def every_ten(begin: int, end: int, epoch: int) -> list[tuple[int, int]]:
    return [(offset, epoch) for offset in range(begin, end, 10)]


def test_an_empty_segment_of_a_member_made_anew_does_not_vouch_for_a_tail_that_was_cut_off(
    scene: Scene,
) -> None:
    member = Member(scene)
    member.append(0, 100, 1)
    assert member.proved(90) == 100
    member.append(100, 150, 1, roll=True)
    member.keep(100)
    member.cut_off(100)
    member.append(100, 150, 2, roll=True)
    assert member.proved(140) == 150
    shutil.rmtree(member.directory)
    member.directory.mkdir()
    member.append(150, 160, 2)
    for path, size in ((member.disk.index_path(150), 8), (member.disk.segment_path(150), 8)):
        os.truncate(path, size)
    member.held.keep_new(member.directory, proved=150)

    assert member.left() == every_ten(0, 100, 1)


def test_what_lies_below_a_proof_of_its_epoch_counts_though_that_is_not_held(scene: Scene) -> None:
    """The stream is deleted before the look that has proved it holds what has come."""
    member = Member(scene)
    member.append(0, 100, 1)
    assert member.proved(50) == 60
    member.keep(60)
    member.append(100, 150, 1, roll=True)
    assert member.proved(140) == 150

    assert member.left() == every_ten(0, 100, 1)


def test_a_newest_segment_that_was_cut_off_hides_nothing_that_was_proved_below_it(
    scene: Scene,
) -> None:
    member = Member(scene)
    member.append(0, 100, 1)
    member.append(100, 150, 1, roll=True)
    assert member.proved(90) == 100
    member.keep(100)
    member.cut_off(100)
    member.append(100, 130, 2)
    assert member.proved(120) == 130

    assert member.left() == [*every_ten(0, 100, 1), *every_ten(100, 130, 2)]


def test_a_newest_segment_of_which_nothing_was_proved_hides_nothing_below_it(scene: Scene) -> None:
    """The broker was started anew: tracking data of an epoch of its own, which nobody delivers."""
    member = Member(scene)
    member.append(0, 100, 1)
    assert member.proved(90) == 100
    tracking = {"chunk_type": ChunkType.TRACKING_SNAPSHOT}
    append_chunks(member.directory, [build_chunk(100, 1, 1_790_000_000_000, [b"x"], **tracking)])
    append_chunks(
        member.directory, [build_chunk(101, 2, 1_790_000_000_000, [b"x"], **tracking)], roll=True
    )
    member.keep(100)

    assert member.left() == every_ten(0, 100, 1)


def test_an_answer_that_takes_long_is_asked_for_no_sooner_again(scene: Scene) -> None:
    """It was old when it came, so each stream without a name asked once more."""
    listed: list[float] = []

    def streams() -> Sequence[StreamQueue]:
        listed.append(scene.now)
        scene.now += 6.0
        return []

    scene.broker.streams = streams  # type: ignore[method-assign]
    for number in range(20):
        scene.write(10, f"__s{number}_1")
        scene.look(f"__s{number}_1", after=0.1)
    assert len(listed) == 1


def test_what_was_proved_stays_so_while_the_last_file_of_a_stream_is_removed(
    scene: Scene,
) -> None:
    """Between two lists of a directory's files; it ended the look with an unexpected error."""
    log = scene.write(30)
    scene.delivers(log, 20)
    assert scene.look() == 30
    append_chunks(log.directory, [build_chunk(30, 1, 1_790_000_001_000, [b"x"])])
    lists = [1]

    class Removed(Disk):
        def names(self, directory: Path) -> Sequence[str]:
            lists[0] -= 1
            return super().names(directory) if lists[0] >= 0 else ()

    scene.gate.files = Removed()

    assert scene.look() == 30
    assert scene.gate.limit(STREAM) == 30
