"""A file that opens slowly, as on a disk that is about to fail, holds up its own stream only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.agent.broker.gate import Gate
from coldstream.agent.disk.files import DISK, Disk, LogFile, LogFiles
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.management import StreamQueue
from coldstream.errors import UnavailableError
from coldstream_devkit.generator import write_stream
from tests.support.probe_stack import eventually

from .conftest import Site
from .test_gate import Scripted
from .test_slow_management import Hurried, hurried, running

SLOW, WELL = "__slow_1795444148462839326", "__well_1795444148462839327"


class SlowDisk(Disk):
    """Opens no index of one stream before it is told to."""

    def __init__(self) -> None:
        self.opens = threading.Event()
        self.waiting = 0

    @contextmanager
    def open(self, directory: Path, name: str) -> Iterator[LogFile]:
        if directory.name == SLOW and name.endswith(".index"):
            self.waiting += 1
            assert self.opens.wait(60)
        with super().open(directory, name) as file:
            yield file


class SlowMachine(Hurried):
    def __init__(self, disk: SlowDisk) -> None:
        super().__init__()
        self._disk = disk

    @property
    def files(self) -> LogFiles:
        return self._disk


@pytest.mark.parametrize("where", ["the gate", "what is held"])
def test_a_slow_file_of_one_stream_holds_up_no_other_and_is_told(site: Site, where: str) -> None:
    broker, disk = Scripted([StreamQueue("/", "slow"), StreamQueue("/", "well")]), SlowDisk()
    for stream in (SLOW, WELL):
        write_stream(site.data_dir / stream, messages=100, chunk_messages=10)
        header = StreamLog(site.data_dir / stream).header_at(90)
        broker.headers[StreamQueue("/", stream.split("_")[2])] = header
    files = disk if where == "the gate" else DISK
    gate = Gate(site.data_dir, broker, files=files, clock=hurried)
    agent = site.agent(committed=gate, once=False, flush_ms=0, host=SlowMachine(disk))

    def published(stream: str) -> int:
        item = site.catalog.items.get(stream)
        return 0 if item is None else item.next_offset

    def told() -> Sequence[str]:
        return [each for each in agent.warnings if SLOW in each and "a look at" in each]

    with running(agent):
        try:
            eventually(lambda: disk.waiting, seconds=30)
            eventually(lambda: published(WELL) == 100, seconds=30)
            assert published(SLOW) == 0
            eventually(told, seconds=30)
            assert agent.figures()["agent_longest_look_seconds"] > 60
        finally:
            disk.opens.set()
        eventually(lambda: published(SLOW) == 100, seconds=30)
        eventually(lambda: not told(), seconds=30)


def test_a_pipe_under_a_files_name_is_an_error_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00000000000000000000.index")

    with (
        pytest.raises(OSError, match="not a regular file"),
        DISK.open(tmp_path, "00000000000000000000.index"),
    ):
        pass


def test_a_failure_that_is_not_the_brokers_silence_waits_before_it_is_tried_again(
    tmp_path: Path,
) -> None:
    """Its own pause is over long ago, and every look would ask at once."""

    class Unready(Disk):
        def names(self, directory: Path) -> Sequence[str]:
            raise UnavailableError("not yet")

    gate = Gate(tmp_path, Scripted(), files=Unready(), clock=lambda: 100.0)

    assert gate.refresh(WELL, 100.0) > 100.0
    assert "not yet" in gate.warnings()[0]


def test_who_waits_for_his_turn_does_not_ask_a_broker_that_was_silent_a_moment_ago(
    tmp_path: Path,
) -> None:
    """Each waited for its time-out, one stream after the other."""
    asked, go_on = threading.Semaphore(0), threading.Event()

    class Silent(Scripted):
        def last_header(self, vhost: str, queue: str) -> bytes | None:
            self.asked += 1
            asked.release()
            assert go_on.wait(60)
            raise UnavailableError("it does not answer")

    streams = [f"__orders_179544414846283932{number}" for number in range(4)]
    for stream in streams:
        write_stream(tmp_path / stream, messages=10)
    broker = Silent()
    gate = Gate(tmp_path, broker, clock=lambda: 100.0, alike=lambda stream, queue: [])
    threads = [threading.Thread(target=gate.refresh, args=(each, 100.0)) for each in streams]
    for thread in threads:
        thread.start()
    assert asked.acquire(timeout=60)
    go_on.set()
    for thread in threads:
        thread.join(60)

    assert broker.asked == 1
    assert all("it does not answer" in each for each in gate.warnings())
