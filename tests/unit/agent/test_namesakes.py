"""Two queues whose names make one directory name, and whose chunks are now and then the same."""

from __future__ import annotations

import random
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from coldstream.agent.broker.namesakes import _may_have
from coldstream.agent.disk.files import Disk, LogFile
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.answers import NoMemberError
from coldstream.broker.management import StreamQueue
from coldstream.manifest.catalog import QueueName
from coldstream_devkit.generator import append_chunks, build_chunk
from tests.unit.agent.test_gate import Scene

DOTTED, PLAIN = StreamQueue("/", "a.b"), StreamQueue("/", "a_b")
OF_DOTTED, OF_PLAIN = "__a_b_1", "__a_b_2"


class Twins(Scene):
    """Two streams that begin with the same ten messages; what is committed of each is delivered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.broker.queues = [DOTTED, PLAIN]
        pairs = ((DOTTED, OF_DOTTED), (PLAIN, OF_PLAIN))
        self.logs = {queue: self.write(10, stream) for queue, stream in pairs}
        self.broker.logs = dict(self.logs)
        for queue in self.logs:
            self.commit(queue, 0)

    def append(self, chunk_id: int, *queues: StreamQueue, body: bytes = b"x") -> None:
        """A chunk of five messages for each queue, the very same one."""
        for queue in queues:
            chunk = build_chunk(chunk_id, 1, 1_790_000_001_000, [body] * 5)
            append_chunks(self.logs[queue].directory, [chunk])

    def commit(self, queue: StreamQueue, chunk_id: int) -> None:
        self.delivers(self.logs[queue], chunk_id, queue)

    def known(self) -> dict[str, tuple[int, str | None]]:
        """Of each directory what is committed, and the queue; after so many looks."""
        for _ in range(2):
            self.look(OF_PLAIN, OF_DOTTED, after=40.0)
        names = {each: self.gate.name(each) for each in (OF_DOTTED, OF_PLAIN)}
        return {
            each: (self.gate.limit(each), name.queue if name is not None else None)
            for each, name in names.items()
        }


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return Twins(tmp_path)


def test_while_two_queues_have_the_same_chunks_what_both_have_is_committed_and_no_name_is(
    twins: Twins,
) -> None:
    assert twins.known() == {OF_DOTTED: (10, None), OF_PLAIN: (10, None)}
    known = twins.gate.known(OF_DOTTED)
    assert "'//a.b' or '//a_b'" in known.doubt
    assert not known.named
    assert twins.gate.warnings() == []


@pytest.mark.parametrize("queue", [DOTTED, PLAIN])
def test_the_directory_that_alone_has_the_last_chunk_of_a_queue_is_its_own_and_so_is_the_other(
    twins: Twins, queue: StreamQueue
) -> None:
    twins.known()
    twins.append(10, queue)
    twins.commit(queue, 10)
    ahead = 15 if queue is DOTTED else 10
    assert twins.known() == {OF_DOTTED: (ahead, "a.b"), OF_PLAIN: (25 - ahead, "a_b")}
    assert twins.gate.known(OF_DOTTED).named
    assert twins.gate.name(OF_PLAIN) == QueueName("c", "/", "a_b")


def test_chunks_before_the_last_one_tell_queues_apart(twins: Twins) -> None:
    twins.append(10, DOTTED, body=b"of dotted")
    twins.append(10, PLAIN, body=b"of plain")
    twins.append(15, DOTTED, PLAIN)
    for queue in (DOTTED, PLAIN):
        twins.commit(queue, 15)
    assert twins.known() == {OF_DOTTED: (20, "a.b"), OF_PLAIN: (20, "a_b")}


def test_what_a_namesake_has_committed_is_not_committed_in_the_other_directory(
    twins: Twins,
) -> None:
    """Its leader was cut off before anybody had the chunk: what follows may be another one."""
    twins.append(10, DOTTED, PLAIN)
    twins.commit(PLAIN, 10)
    known = twins.known()
    assert known[OF_DOTTED][0] == 10
    assert known[OF_PLAIN][0] == 10

    twins.append(15, PLAIN)
    twins.commit(PLAIN, 15)
    assert twins.known() == {OF_DOTTED: (10, "a.b"), OF_PLAIN: (20, "a_b")}


def test_of_a_queue_with_nothing_committed_nothing_is_proved_by_its_namesake(twins: Twins) -> None:
    twins.broker.headers[DOTTED] = None
    known = twins.known()
    assert known[OF_DOTTED] == known[OF_PLAIN] == (0, None)
    assert "another directory has the same last chunks" in twins.gate.warnings()[0]

    twins.commit(DOTTED, 0)
    twins.append(10, DOTTED)
    twins.commit(DOTTED, 10)
    assert twins.known() == {OF_DOTTED: (15, "a.b"), OF_PLAIN: (10, "a_b")}


def test_a_namesake_without_a_message_stops_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.broker.queues = [DOTTED, PLAIN]
    log = scene.write(10, OF_DOTTED)
    scene.write(0, OF_PLAIN)
    scene.delivers(log, 0, DOTTED)

    scene.look(OF_DOTTED, OF_PLAIN)

    assert scene.gate.limit(OF_DOTTED) == 10
    assert scene.gate.name(OF_DOTTED) == QueueName("c", "/", "a.b")


def test_a_directory_whose_queue_the_user_may_not_see_is_not_that_of_its_namesake(
    twins: Twins,
) -> None:
    twins.broker.queues = [PLAIN]
    assert twins.known()[OF_DOTTED][1] is None

    twins.append(10, PLAIN)
    twins.commit(PLAIN, 10)
    assert twins.known()[OF_PLAIN] == (15, "a_b")
    assert twins.known()[OF_DOTTED][1] is None


def test_a_settled_name_stays_though_the_last_chunks_become_the_same(twins: Twins) -> None:
    twins.append(10, DOTTED, body=b"of dotted")
    twins.append(10, PLAIN, body=b"of plain")
    for queue in (DOTTED, PLAIN):
        twins.commit(queue, 10)
    twins.known()
    for first in range(15, 400, 5):
        twins.append(first, DOTTED, PLAIN)
    for queue in (DOTTED, PLAIN):
        twins.commit(queue, 395)
    assert twins.known() == {OF_DOTTED: (400, "a.b"), OF_PLAIN: (400, "a_b")}


def test_a_queue_that_was_settled_on_the_wrong_directory_is_seen_to_be_another_one(
    tmp_path: Path,
) -> None:
    """Its member had not run yet when its namesake was asked."""
    twins = Twins(tmp_path)
    right = twins.logs[PLAIN].directory.rename(tmp_path / "elsewhere")
    twins.broker.headers[DOTTED] = NoMemberError("its member starts")
    twins.look(OF_DOTTED)
    assert twins.gate.name(OF_DOTTED) == QueueName("c", "/", "a_b")

    right.rename(tmp_path / OF_PLAIN)
    twins.commit(DOTTED, 0)
    twins.append(10, PLAIN, body=b"of plain")
    twins.commit(PLAIN, 10)
    twins.append(10, DOTTED, body=b"of dotted")
    twins.commit(DOTTED, 10)
    assert twins.known() == {OF_DOTTED: (15, "a.b"), OF_PLAIN: (15, "a_b")}


@pytest.mark.parametrize("seed", range(40))
def test_a_name_that_is_settled_is_the_right_one_and_no_more_is_committed_than_is(
    tmp_path: Path, seed: int
) -> None:
    """Any mix of the same and of other chunks, committed sooner or later."""
    rng, twins = random.Random(seed), Twins(tmp_path)
    ends = dict.fromkeys((DOTTED, PLAIN), 10)
    committed = dict(ends)
    streams = {DOTTED: OF_DOTTED, PLAIN: OF_PLAIN}
    twins.broker.leader = True
    for _ in range(30):
        what = rng.randrange(4)
        if what == 0 and ends[DOTTED] == ends[PLAIN]:
            twins.append(ends[DOTTED], DOTTED, PLAIN)
            ends = {each: end + 5 for each, end in ends.items()}
        elif what == 1:
            queue = rng.choice((DOTTED, PLAIN))
            twins.append(ends[queue], queue, body=b"%d" % rng.randrange(2))
            ends[queue] += 5
        elif what == 2:
            queue = rng.choice((DOTTED, PLAIN))
            committed[queue] = ends[queue]
            twins.commit(queue, ends[queue] - 5 if ends[queue] > 10 else 0)
        else:
            twins.look(*rng.sample((OF_DOTTED, OF_PLAIN), 2), after=rng.choice((0.1, 40.0)))
        for queue, stream in streams.items():
            assert twins.gate.limit(stream) <= committed[queue]
            name = twins.gate.name(stream)
            assert name is None or name.queue == queue.queue


def test_only_who_has_a_namesake_asks_more_than_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.broker.queues = [StreamQueue("/", f"s{n}") for n in range(50)]
    logs: list[StreamLog] = [scene.write(10, f"__s{n}_1") for n in range(50)]
    for queue, log in zip(scene.broker.queues, logs, strict=True):
        scene.delivers(log, 0, queue)
    scene.look(*(f"__s{n}_1" for n in range(50)))
    assert scene.broker.asked == 50
    assert len(scene.gate.names) == 50


def test_while_a_queue_cannot_be_asked_its_namesake_proves_nothing_of_what_may_be_its_directory(
    twins: Twins,
) -> None:
    """Its tail may be cut off, though the namesake has the very same chunks, and committed them."""
    for first in range(10, 100, 5):
        twins.append(first, DOTTED, PLAIN)
    twins.commit(PLAIN, 95)
    twins.broker.headers[DOTTED] = NoMemberError("its member does not run")
    assert twins.known() == {OF_DOTTED: (0, None), OF_PLAIN: (0, None)}

    twins.commit(DOTTED, 50)
    assert twins.known() == {OF_DOTTED: (55, None), OF_PLAIN: (55, None)}


def test_what_is_not_the_directory_of_a_queue_has_nothing_committed_by_it(twins: Twins) -> None:
    twins.append(10, DOTTED, body=b"of dotted")
    twins.append(10, PLAIN, body=b"of plain")
    twins.append(15, DOTTED, PLAIN)
    twins.commit(PLAIN, 15)
    twins.broker.headers[DOTTED] = NoMemberError("its member does not run")
    assert twins.known() == {OF_DOTTED: (0, None), OF_PLAIN: (20, "a_b")}


@pytest.mark.parametrize("empty_namesake", [False, True])
def test_what_an_earlier_queue_of_the_name_has_left_behind_stops_nothing(
    tmp_path: Path, empty_namesake: bool
) -> None:
    """Its first segment lies above all that the new queue has: retention had taken the rest."""
    scene = Scene(tmp_path)
    scene.write(100, OF_DOTTED, start_offset=1000)
    log = scene.write(100, OF_PLAIN)
    scene.broker.queues = [DOTTED, PLAIN] if empty_namesake else [PLAIN]
    scene.broker.logs = {PLAIN: log}
    scene.delivers(log, 90, PLAIN)
    for _ in range(2):
        scene.look(OF_DOTTED, OF_PLAIN, after=40.0)
    assert scene.gate.limit(OF_PLAIN) == 100
    assert scene.gate.name(OF_PLAIN) == QueueName("c", "/", "a_b")


def test_retention_of_a_segment_of_a_rival_is_not_taken_for_its_removal(tmp_path: Path) -> None:
    """Between its list of files and the file."""
    scene = Scene(tmp_path)
    logs = [scene.write(100, each, segment_bytes=30_000) for each in (OF_DOTTED, OF_PLAIN)]
    oldest = logs[0].segments()[0]
    header = logs[0].header_at(oldest)
    assert header is not None

    class Raced(Disk):
        def open(self, directory: Path, name: str) -> AbstractContextManager[LogFile]:
            for path in directory.glob(f"{oldest:020d}.*"):
                path.unlink()
            return super().open(directory, name)

    assert _may_have(StreamLog(logs[1].directory, Raced()), oldest, header)
    shutil.rmtree(logs[1].directory)
    assert not _may_have(logs[1], oldest, header)


def test_who_waits_for_all_at_the_start_waits_for_a_name_that_another_one_s_settles(
    tmp_path: Path,
) -> None:
    twins = Twins(tmp_path)
    twins.append(10, PLAIN)
    twins.commit(PLAIN, 10)
    twins.gate.pause = lambda seconds: setattr(twins, "now", twins.now + seconds)
    with twins.gate.looking(once=True):
        assert {each.queue for each in twins.gate.names.values()} == {"a.b", "a_b"}
