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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.agent_process import AgentProcess
from bench.cloud import PREFIX, cloud
from bench.durable import Seen
from bench.limits import Limits, group
from bench.report import quick, ratio
from coldstream.names import FRAGMENT_SUFFIX, parse_data_key
from coldstream_devkit.generator import append_chunks, build_chunk

FLUSH_SECONDS = 2
MESSAGES = 10
_MESSAGE = bytes(200)
_SEED = 1


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        streams: directories.
        growing: of them.
        grow_seconds: for how long they grow.
        idle_passes: how many are measured.
    """

    streams: int
    growing: int
    grow_seconds: int
    idle_passes: int


FULL = Size(10_000, 100, 60, 60)
QUICK = Size(300, 3, 4, 4)


@dataclass(slots=True)
class Fleet:
    """Streams that grow by a chunk at a time.

    Attributes:
        ends: offset at which each one ends.
        appended: (monotonic seconds, stream, offset after it) of each append.
    """

    data_dir: Path
    ends: dict[str, int] = field(default_factory=dict)
    appended: list[tuple[float, str, int]] = field(default_factory=list)

    def grow(self, stream: str) -> None:
        """Append a chunk to a stream, or begin it."""
        begin = self.ends.get(stream, 0)
        chunk = build_chunk(begin, 1, time.time_ns() // 1_000_000, [_MESSAGE] * MESSAGES)
        append_chunks(self.data_dir / stream, [chunk])
        self.ends[stream] = begin + MESSAGES
        self.appended.append((time.monotonic(), stream, begin + MESSAGES))


@contextmanager
def _place() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="coldstream-fleet-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    size = QUICK if quick(__doc__) else FULL
    chosen = random.Random(_SEED)
    with ExitStack() as stack:
        work = stack.enter_context(_place())
        here = Limits(10, group=stack.enter_context(group(20, quota=1.0)))
        there = stack.enter_context(cloud(work, Limits()))
        fleet = Fleet(work / "streams")
        for number in range(size.streams):
            fleet.grow(f"__s{number}_1700000000000000000")
        growing = chosen.sample(sorted(fleet.ends), size.growing)
        seen = Seen(there)

        def agent(name: str) -> AgentProcess:
            arguments = ["--committed", "all", "--flush-seconds", str(FLUSH_SECONDS)]
            return AgentProcess(
                fleet.data_dir, arguments, there.environment, here, work / f"{name}.log"
            )

        with agent("first") as first:
            seen.wait_for(fleet.ends, first, 1800)
            began = time.monotonic() - first.began
            print(
                f"{size.streams} streams, {size.growing} of them grow; flush time {FLUSH_SECONDS} s,"
                f" control groups {'as in the unit' if here.group else 'not to be had: nice only'}"
            )
            print(f"  first start, all of them new and durable     {began:8.1f} s", flush=True)
            cold = first.cpu
            print(f"  of which CPU a stream                        {cold / size.streams * 1e3:8.1f} ms")
            fleet.appended.clear()
            until = time.monotonic() + size.grow_seconds
            while time.monotonic() < until:
                at = time.monotonic()
                for stream in growing:
                    fleet.grow(stream)
                time.sleep(max(0.0, 1.0 - (time.monotonic() - at)))
            busy = (first.cpu - cold) / size.grow_seconds
            seen.wait_for(fleet.ends, first, 120)
            late = seen.durable_after(fleet.appended)
            p50, p99 = np.percentile(late, [50, 99])
            print(f"  append -> durable, p50 / p99 / most          {p50:8.2f} / {p99:.2f} / {max(late):.2f} s")
            print(f"  CPU while they grow, of one core             {busy * 100:8.1f} %")
            time.sleep(5 if size is FULL else 1)
            cpu, at = first.cpu, time.monotonic()
            time.sleep(size.idle_passes)
            passes = time.monotonic() - at  # one a second
            idle = (first.cpu - cpu) / passes
            print(f"  idle pass, CPU                               {idle * 1e3:8.1f} ms")
            memory = first.peak
            first.kill()
        fleet.appended.clear()
        for stream in growing:
            fleet.grow(stream)
        time.sleep(2)
        seen.look()
        with agent("second") as second:
            ends = {stream: fleet.ends[stream] for stream in growing}
            seen.wait_for(ends, second, 1800)
            mine = {
                key: at - second.began
                for at, key, _ in seen.puts
                if key.endswith(FRAGMENT_SUFFIX) and at > second.began
            }
            restart = min(mine.values())
            last = max(at for key, at in mine.items() if parse_data_key(key, PREFIX).stream in ends)
            print(f"  restart -> first PUT                         {restart:8.1f} s")
            print(f"  restart -> last PUT of what grew meanwhile   {last:8.1f} s", flush=True)
            fleet.appended.clear()
            until = time.monotonic() + size.grow_seconds / 2
            while time.monotonic() < until:
                at = time.monotonic()
                for stream in growing:
                    fleet.grow(stream)
                time.sleep(max(0.0, 1.0 - (time.monotonic() - at)))
            seen.wait_for(fleet.ends, second, 1800)
            again = np.percentile(seen.durable_after(fleet.appended), 99)
            print(f"  append -> durable, p99 right after a restart {again:8.2f} s")
            memory = max(memory, second.peak)
        print(f"  resident memory, the most                    {memory / 1e6:8.1f} MB")
    ratio("fleet-durable", p99 / (FLUSH_SECONDS + 5), "<= 1.0")
    ratio("fleet-idle-pass", idle / 0.050, "<= 1.0")
    ratio("fleet-restart", restart / 10, "<= 1.0")
    ratio("fleet-memory", memory / 400e6, "<= 1.0")


if __name__ == "__main__":
    main()
