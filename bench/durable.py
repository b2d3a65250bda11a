"""When what was appended is durable: what benchmarks ask the stand-in of AWS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.agent_process import AgentProcess
from bench.cloud import There


@dataclass(slots=True)
class Seen:
    """What the stand-in of AWS has told so far; times are monotonic seconds.

    Attributes:
        there: it.
        puts: (time, key, bytes).
        commits: (time, stream, where its manifest ends).
        asked: (time, stream) of the function that claims and commits.
        ends: of each manifest.
    """

    there: There
    puts: list[tuple[float, str, int]] = field(default_factory=list)
    commits: list[tuple[float, str, int]] = field(default_factory=list)
    asked: list[tuple[float, str]] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Ask what is new."""
        told = self.there.taken()
        self.puts += [(at, key, size) for at, key, size in told["puts"]]
        self.asked += [(at, stream) for at, stream, _ in told["asked"]]
        for at, stream, end in told["commits"]:
            self.commits.append((at, stream, end))
            self.ends[stream] = max(end, self.ends.get(stream, 0))

    def wait_for(self, ends: dict[str, int], agent: AgentProcess, seconds: float) -> None:
        """Wait until every manifest ends where its stream does.

        Raises:
            SystemExit: that takes longer.
        """
        deadline = time.monotonic() + seconds
        while any(self.ends.get(stream, 0) < end for stream, end in ends.items()):
            agent.check()
            if time.monotonic() > deadline:
                missing = [each for each, end in ends.items() if self.ends.get(each, 0) < end]
                raise SystemExit(f"{len(missing)} streams do not become durable: {missing[:3]}")
            time.sleep(0.5)
            self.look()

    def durable_after(self, appended: list[tuple[float, str, int]]) -> list[float]:
        """Seconds from each append to its commit."""
        by_stream: dict[str, list[tuple[float, int]]] = {}
        for at, stream, end in sorted(self.commits):
            by_stream.setdefault(stream, []).append((at, end))
        return [
            next(at for at, end in by_stream[stream] if end >= offset) - began
            for began, stream, offset in appended
        ]


def percentiles(late: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th, where each value stands for so many messages."""
    order = np.argsort(late)
    reached = np.cumsum(np.asarray(weights)[order])
    p50, p99 = (np.searchsorted(reached, share * reached[-1]) for share in (0.5, 0.99))
    return float(late[order[p50]]), float(late[order[p99]])
