"""The real agent beside a real broker: what it takes, what it gives, how soon data is durable.

    upload        as much as the agent can over a link of 160 MB/s, against plain PUTs by obstore
                  of the same files over the same link, three at a time, in turns
    CPU           of the agent's process for each GB of those uploads; of which reading and CRCs,
                  and what the plain PUTs take, which is copying, checksum and TLS; and what it had
                  taken to start, until its first request
    beside        messages a second that RabbitMQ confirms: alone, with the agent, with a process
                  that does nothing but PUT as many bytes, in turns
    durable       from the confirmation of a message to the commit that has it in the manifest
    memory        resident, the most

The agent is `coldstream agent run`, with the limits of its unit (`limits`). The broker is the
system's RabbitMQ, in a group with systemd's usual weight, and with it who publishes. AWS is a
stand-in over TLS (`cloud`). Beside the broker it gets what CPU time nobody else wants, because it
would not be on that machine; what it takes all the same counts as lost to the agent. The share of
the data that was in S3 when publishing ended says whether the agent was at work.
"""

from __future__ import annotations

import secrets
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.agent_beside import FLUSH_SECONDS, Beside, Durable, Scene, at_rates, beside
from bench.agent_upload import PARALLEL, Uploads, uploads
from bench.cloud import WINDOW_SECONDS, cloud
from bench.flood import MESSAGE_SIZE
from bench.limits import Limits, group
from bench.report import megabytes_per_second, quick, ratio
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_release import SYSTEM

LINK = 160e6
RATES = (1, 1000)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        messages: of one kilobyte, to upload in each round.
        rounds: of uploads.
        turns: of publishing with and without the agent.
        seconds: of each turn.
        rate_seconds: of publishing at a rate.
    """

    messages: int
    rounds: int
    turns: int
    seconds: float
    rate_seconds: float


FULL = Size(3_000_000, 3, 6, 20, 60)
QUICK = Size(20_000, 1, 1, 2, 3)


@contextmanager
def _place() -> Iterator[Path]:
    """A directory that the user of the broker's package may enter."""
    work = Path(tempfile.gettempdir()) / f"coldstream-bench-{secrets.token_hex(4)}"
    work.mkdir(mode=0o755)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _uploads(work: Path, size: Size, limits: Limits) -> Uploads:
    with cloud(work, Limits()) as there:
        there.link(LINK)
        return uploads(work, there, size.rounds, size.messages, limits)


def _beside(work: Path, size: Size, limits: Limits) -> tuple[Beside, list[Durable]]:
    with (
        group(100) as usual,
        group(10, idle=True) as elsewhere,
        cloud(work, Limits(group=elsewhere)) as there,
    ):
        node, others = BrokerNode(work / "broker"), Limits(group=usual)
        try:
            node.start()
            others.take_all(node.pid)
            scene = Scene(node, there, work, limits, others)
            return beside(scene, size.turns, size.seconds), at_rates(
                scene, RATES, size.rate_seconds
            )
        finally:
            node.stop()


def _range(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:7.{digits}f}  ({low:.{digits}f} .. {high:.{digits}f})"


def _percent(shares: Sequence[float]) -> str:
    return f"{_range([each * 100 for each in shares], 1)} %"


def _lost(beside: Sequence[float], alone: Sequence[float]) -> float:
    return statistics.median(1 - each / of for each, of in zip(beside, alone, strict=True))


def _print_uploads(found: Uploads, limits: Limits) -> None:
    groups = "as in the unit" if limits.group else "not to be had, nice only"
    print(f"upload of {found.size / 1e6:.0f} MB over {LINK / 1e6:.0f} MB/s, {PARALLEL} at a time,")
    print(f"{len(found.agent)} rounds in turn, median (range); control groups: {groups}")
    print(f"  plain obstore PUT             {megabytes_per_second(found.size, found.plain)}")
    print(f"  agent, claim to last PUT      {megabytes_per_second(found.size, found.agent)}")
    print(f"  CPU of the agent              {found.per_gigabyte(found.agent_cpu):7.2f} s/GB")
    print(f"    reading and CRCs alone      {found.per_gigabyte(found.check_cpu):7.2f} s/GB")
    print(f"    plain PUTs: checksum, TLS   {found.per_gigabyte(found.plain_cpu):7.2f} s/GB")
    print(f"  CPU of its start              {statistics.median(found.start_cpu):7.2f} s")
    print(f"  resident memory, the most     {found.memory / 1e6:7.0f} MB", flush=True)


def _print_beside(found: Beside, slow: Sequence[Durable]) -> None:
    print(f"publishing messages of {MESSAGE_SIZE} bytes, {len(found.alone)} turns, median (range)")
    print(f"  without the agent             {_range(found.alone)} messages/s")
    print(f"  with the agent                {_range(found.beside)} messages/s")
    print(f"  with plain PUTs               {_range(found.puts)} messages/s")
    print(f"  CPU of the agent              {_percent(found.cpu)} of a core")
    print(f"  in S3 when publishing ends    {_percent(found.uploaded)}")
    print(f"  resident memory, the most     {found.memory / 1e6:7.0f} MB")
    waits = f"flush time {FLUSH_SECONDS} s, commits gathered {WINDOW_SECONDS:.0f} s"
    print(f"confirmed -> durable; {waits}")
    full = sorted(found.late, key=lambda each: each.p99)[len(found.late) // 2]
    for each in (*slow, full):
        print(f"  {each.rate:7.0f} messages/s, p50 / p99  {each.p50:7.2f} / {each.p99:.2f} s")


def main() -> None:
    size = QUICK if quick(__doc__) else FULL
    if not SYSTEM.installed():
        raise SystemExit(SYSTEM.missing())
    with _place() as work, group(20, quota=1.0) as own:
        limits = Limits(10, group=own)
        sent = _uploads(work, size, limits)
        _print_uploads(sent, limits)
        found, slow = _beside(work, size, limits)
        _print_beside(found, slow)
    lost, puts = _lost(found.beside, found.alone), _lost(found.puts, found.alone)
    print(f"plain PUTs, which do nothing else, take {puts:.3f} of the broker's rate here")
    ratio("agent-upload", statistics.median(sent.plain) / statistics.median(sent.agent), ">= 0.95")
    ratio("agent-cpu-per-gb", sent.per_gigabyte(sent.agent_cpu), "<= 1.0")
    ratio("agent-rate-lost", lost, "<= 0.03")


if __name__ == "__main__":
    main()
