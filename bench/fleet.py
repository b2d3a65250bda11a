"""Ten thousand stream directories of which one in a hundred grows, and one real agent beside them.

    append -> durable    from an append to the commit that has it in the manifest
    idle pass            CPU time from one look at the directories to the next, nothing changed
    restart              from the start of the process to the first PUT of what grew meanwhile
    memory               the most resident bytes that the agent ever had

The directories are written by the test generator, and the agent is told that all in them is
committed: no broker of this machine could have so many streams. What AWS does is a stand-in
(`cloud`). The agent is the real process, with the limits of its unit (`limits`).
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.agent_process import AgentProcess
from bench.cloud import WINDOW_SECONDS, There, cloud
from bench.durable import Seen, percentiles
from bench.limits import Limits, group
from bench.report import quick, ratio
from coldstream.names import FRAGMENT_SUFFIX
from coldstream_devkit.generator import append_chunks, build_chunk

FLUSH_SECONDS = 2
MESSAGES = 10
_MESSAGE = bytes(200)
_SEED = 1
_LONGEST = 1800.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        streams: directories.
        growing: of them.
        grow_seconds: for how long they grow, a chunk a second each.
        settle_seconds: until nothing is under way any more.
        idle_seconds: for how long nothing happens, with a pass every second.
    """

    streams: int
    growing: int
    grow_seconds: int
    settle_seconds: int
    idle_seconds: int


# Streams that have not changed for a minute are looked at in every third pass only.
FULL = Size(10_000, 100, 60, 70, 60)
QUICK = Size(300, 3, 4, 1, 4)


@dataclass(slots=True)
class Fleet:
    """Streams that grow by a chunk at a time.

    Attributes:
        data_dir: holds them.
        ends: offset at which each one ends.
        appended: (monotonic seconds, stream, offset after it) of each append.
    """

    data_dir: Path
    ends: dict[str, int] = field(default_factory=dict)
    appended: list[tuple[float, str, int]] = field(default_factory=list)

    def grow(self, *streams: str) -> None:
        """Append a chunk to each of the streams, or begin it."""
        for stream in streams:
            begin = self.ends.get(stream, 0)
            chunk = build_chunk(begin, 1, time.time_ns() // 1_000_000, [_MESSAGE] * MESSAGES)
            append_chunks(self.data_dir / stream, [chunk])
            self.ends[stream] = begin + MESSAGES
            self.appended.append((time.monotonic(), stream, begin + MESSAGES))

    def grow_for(self, seconds: float, streams: list[str]) -> None:
        """Let streams grow once a second; earlier appends are forgotten."""
        self.appended.clear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            self.grow(*streams)
            time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


@dataclass(slots=True)
class Figures:
    """What came of it. Seconds, CPU seconds, bytes.

    Attributes:
        first: from the first start until all streams were durable.
        first_cpu: of that.
        late: p50 and p99 from append to durable.
        busy: CPU of one second while streams grow.
        idle: CPU of a pass in which nothing has changed.
        restart: from a restart to the first PUT.
        restart_last: to the last PUT of what had grown meanwhile.
        restart_late: p50 and p99 of appends from then on, while all else is opened again.
        opened: from the restart until all streams have been.
        memory: the most that was resident.
    """

    first: float = 0.0
    first_cpu: float = 0.0
    late: tuple[float, float] = (0.0, 0.0)
    busy: float = 0.0
    idle: float = 0.0
    restart: float = 0.0
    restart_last: float = 0.0
    restart_late: tuple[float, float] = (0.0, 0.0)
    opened: float = 0.0
    memory: int = 0


@dataclass(slots=True)
class Scene:
    """Streams, a stand-in of AWS, and an agent that is started twice."""

    fleet: Fleet
    there: There
    work: Path
    limits: Limits
    size: Size
    growing: list[str]
    seen: Seen = field(init=False)
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.seen = Seen(self.there)

    @contextmanager
    def agent(self, name: str) -> Iterator[AgentProcess]:
        """One life of an agent."""
        arguments = ["--committed", "all", "--flush-seconds", str(FLUSH_SECONDS)]
        log, environment = self.work / f"{name}.log", self.there.environment
        with AgentProcess(self.fleet.data_dir, arguments, environment, self.limits, log) as agent:
            yield agent
            self.figures.memory = max(self.figures.memory, agent.peak)
            agent.kill()

    def late(self) -> tuple[float, float]:
        """The percentiles of the last appends, once they are durable."""
        appended = self.fleet.appended
        return percentiles(self.seen.durable_after(appended), [1.0] * len(appended))

    def first_life(self) -> None:
        """All streams are new; then some grow."""
        fleet, size, found = self.fleet, self.size, self.figures
        with self.agent("first") as agent:
            self.seen.wait_for(fleet.ends, agent, _LONGEST)
            found.first, found.first_cpu = time.monotonic() - agent.began, agent.cpu
            cpu = agent.cpu
            fleet.grow_for(size.grow_seconds, self.growing)
            found.busy = (agent.cpu - cpu) / size.grow_seconds
            self.seen.wait_for(fleet.ends, agent, _LONGEST)
            found.late = self.late()

    def second_life(self) -> None:
        """Some have grown while no agent ran, and go on while it opens the others; then nothing."""
        fleet, found = self.fleet, self.figures
        fleet.grow(*self.growing)
        ends = {stream: fleet.ends[stream] for stream in self.growing}
        time.sleep(FLUSH_SECONDS)
        self.seen.look()
        with self.agent("second") as agent:
            before = len(self.seen.puts)
            self.seen.asked.clear()
            self.seen.wait_for(ends, agent, _LONGEST)
            fragments = [
                at - agent.began
                for at, key, _ in self.seen.puts[before:]
                if key.endswith(FRAGMENT_SUFFIX)
            ]
            found.restart, found.restart_last = min(fragments), max(fragments)
            fleet.grow_for(self.size.grow_seconds, self.growing)
            grown = {stream: fleet.ends[stream] for stream in self.growing}
            self.seen.wait_for(grown, agent, _LONGEST)
            found.restart_late = self.late()
            # Only now nothing is left to do: what an agent has uploaded it compares after a while.
            while len({stream for _, stream in self.seen.asked}) < self.size.streams:
                agent.check()
                time.sleep(0.5)
                self.seen.look()
            found.opened = time.monotonic() - agent.began
            time.sleep(self.size.settle_seconds)
            cpu = agent.cpu
            time.sleep(self.size.idle_seconds)
            found.idle = (agent.cpu - cpu) / self.size.idle_seconds

    def say(self) -> None:
        """Print the figures."""
        found, size = self.figures, self.size
        groups = "as in the unit" if self.limits.group else "not to be had, nice only"
        print(f"{size.streams} streams, {size.growing} of them grow; control groups: {groups};")
        print(f"flush time {FLUSH_SECONDS} s, commits gathered {WINDOW_SECONDS:.0f} s")
        print(f"  first start until all are durable   {found.first:8.1f} s")
        print(
            f"    CPU of it, each stream            {found.first_cpu / size.streams * 1e3:8.1f} ms"
        )
        print(f"  append -> durable, p50 / p99        {found.late[0]:8.2f} / {found.late[1]:.2f} s")
        print(f"  CPU while they grow                 {found.busy * 100:8.1f} % of a core")
        print(f"  CPU of an idle pass                 {found.idle * 1e3:8.1f} ms")
        print(f"  restart -> first PUT                {found.restart:8.1f} s")
        print(f"    last PUT of what had grown        {found.restart_last:8.1f} s")
        after = found.restart_late
        print(f"    append -> durable, p50 / p99      {after[0]:8.2f} / {after[1]:.2f} s")
        print(f"    all streams are opened again      {found.opened:8.1f} s")
        print(f"  resident memory, the most           {found.memory / 1e6:8.1f} MB")
        ratio("fleet-durable", found.late[1] / (FLUSH_SECONDS + 5), "<= 1.0")
        ratio("fleet-idle-pass", found.idle / 0.050, "<= 1.0")
        ratio("fleet-restart", found.restart / 10, "<= 1.0")
        ratio("fleet-memory", found.memory / 400e6, "<= 1.0")


@contextmanager
def _place() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="coldstream-fleet-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    size = QUICK if quick(__doc__) else FULL
    with _place() as work, group(20, quota=1.0) as own, cloud(work, Limits()) as there:
        fleet = Fleet(work / "streams")
        fleet.grow(*(f"__s{number}_1700000000000000000" for number in range(size.streams)))
        growing = random.Random(_SEED).sample(sorted(fleet.ends), size.growing)
        scene = Scene(fleet, there, work, Limits(10, group=own), size, growing)
        scene.first_life()
        scene.second_life()
        scene.say()


if __name__ == "__main__":
    main()
