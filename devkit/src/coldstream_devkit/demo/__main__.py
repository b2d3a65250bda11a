"""`make demo`: the whole way of a message, on one machine, with every part real.

Deploys the CDK app to the embedded AWS, lets the agent tier segment files that real brokers wrote
and one generated stream of 300 MB, waits until the manifests have followed, reads every message
back through them, and compares. Then the state machines work on a stream of their own. Runs from a
checkout, because it needs the app and the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coldstream import deployment
from coldstream.agent.broker.committed import CommittedFile
from coldstream.agent.run import Agent
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress as StreamProgress
from coldstream.cli.agent import read_names
from coldstream.cli.connect import claim_function, connect
from coldstream.cli.exit_codes import ExitCode, exit_code_of
from coldstream.cli.report import explain
from coldstream.errors import ColdstreamError
from coldstream.osiris.chunk import ChunkType, iter_chunks
from coldstream.osiris.entry import iter_messages
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream.remote.roots import load
from coldstream_devkit.demo.jobs import JobsDemo
from coldstream_devkit.demo.workflows import SETTINGS, WorkflowsDemo
from coldstream_devkit.generator import write_stream
from coldstream_devkit.local import environment

ROOT = Path(__file__).resolve().parents[4]
_STREAM_TIME = 1_795_227_164_559_759_047  # ns, as a broker would have put it into the name
_BIG_MESSAGES = 300_000
_BIG_MESSAGE_SIZE = 1000
_INTERRUPTED = (
    "demo: interrupted. The embedded AWS stays up if it was; `.venv/bin/coldstream local down`"
    " stops it, --wipe (or `make down`) removes what it holds, too"
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What must come back of one stream.

    Attributes:
        stream: directory name.
        queue: name of the queue it belongs to.
        committed: last committed offset, None if all of it is.
        first_offset: of the first chunk.
        next_offset: after the last committed chunk.
        ranges: (first offset, messages) of every committed user chunk.
        sha256: over all message bodies in these ranges.
        size: bytes of segment data that is committed.
    """

    stream: str
    queue: str
    committed: int | None
    first_offset: int
    next_offset: int
    ranges: tuple[tuple[int, int], ...]
    sha256: str
    size: int

    @property
    def messages(self) -> int:
        """How many messages."""
        return sum(count for _, count in self.ranges)


def prepare(data_dir: Path, fixtures: Path) -> list[Expected]:
    """Lay out the stream directories below `data_dir`; say what each must read back as."""
    shutil.rmtree(data_dir, ignore_errors=True)
    expected = []
    content = json.loads((fixtures / "fixtures.json").read_text())
    for number, fixture in enumerate(content["streams"]):
        directory = str(fixture["broker_directory"]).replace("<ns>", str(_STREAM_TIME + number))
        shutil.copytree(fixtures / fixture["path"], data_dir / directory)
        committed = fixture.get("last_committed_chunk_in_stale")
        queue = f"{fixture['stream']} ({fixture['path']})"
        expected.append(_expect(data_dir / directory, fixture, queue, committed))
    big = data_dir / f"__demo_big_{_STREAM_TIME}"
    written = write_stream(
        big, messages=_BIG_MESSAGES, message_size=_BIG_MESSAGE_SIZE, chunk_messages=256
    )
    counts = [(at, min(256, written.next_offset - at)) for at in range(0, written.next_offset, 256)]
    expected.append(
        Expected(
            stream=written.stream,
            queue="demo.big (generated)",
            committed=None,
            first_offset=written.first_offset,
            next_offset=written.next_offset,
            ranges=tuple(counts),
            sha256=written.sha256,
            size=sum(path.stat().st_size for path in big.glob("*.segment")),
        )
    )
    return expected


def _expect(
    directory: Path, fixture: dict[str, Any], queue: str, committed: int | None
) -> Expected:
    """From fixtures.json; where only a part is committed, the part's checksum from its chunks."""
    ranges = tuple((first, count) for first, count in fixture["user_chunks"])
    if committed is None:
        return Expected(
            stream=directory.name,
            queue=queue,
            committed=None,
            first_offset=fixture["first_offset"],
            next_offset=fixture["next_offset"],
            ranges=ranges,
            sha256=fixture["sha256"],
            size=sum(segment["bytes"] for segment in fixture["segments"]),
        )
    digest = hashlib.sha256()
    size = 0
    for path in sorted(directory.glob("*.segment")):
        for chunk in iter_chunks(path.read_bytes(), SEGMENT_HEADER_SIZE):
            if chunk.header.chunk_id > committed:
                break
            size += chunk.header.size
            if chunk.header.chunk_type == ChunkType.USER:
                for body in iter_messages(chunk):
                    digest.update(body)
    return Expected(
        stream=directory.name,
        queue=queue,
        committed=committed,
        first_offset=fixture["first_offset"],
        next_offset=committed + 1,
        ranges=tuple(each for each in ranges if each[0] <= committed),
        sha256=digest.hexdigest(),
        size=size,
    )


def read_back(reader: StreamReader, expected: Expected) -> str | None:
    """Read a stream from its first offset to its end; None if all is as expected, else why not."""
    digest = hashlib.sha256()
    found: list[tuple[int, int]] = []
    try:
        for chunk in reader.chunks(First()):
            if chunk.header.chunk_type != ChunkType.USER:
                continue
            count = 0
            for body in iter_messages(chunk):
                digest.update(body)
                count += 1
            found.append((chunk.header.chunk_id, count))
    except ColdstreamError as exc:
        return str(exc)
    if tuple(found) != expected.ranges:
        return f"other offsets: {len(found)} chunks, expected {len(expected.ranges)}"
    if digest.hexdigest() != expected.sha256:
        return "other bytes: the sha256 differs"
    return None


def tier(agent: Agent, total: int, console: Console) -> list[StreamProgress]:
    """Run the agent once, with a bar that fills as manifests follow."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        uploaded = bar.add_task("uploaded", total=total, done="")
        behind = bar.add_task("manifests followed", total=None, done="")

        def report(progress: list[StreamProgress]) -> None:
            size = sum(each.bytes for each in progress)
            bar.update(uploaded, completed=size, done=f"{size / 2**20:.0f} MiB")
            followed = sum(each.durable_seconds is not None for each in progress)
            of = f"{followed} of {len(progress)} streams"
            bar.update(behind, completed=followed, total=len(progress), done=of)

        agent.report = report
        result = agent.run()
        report(result)
    return result


def _port(root: Path) -> int | None:
    """A free port if another writer has the usual one and ours has none yet; None otherwise."""
    status = environment.status(root)
    if status.running or status.outputs:
        return None
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", environment.DEFAULT_PORT))
        except OSError:
            return 0
    return None


def main() -> int:
    """Run the demo; 0 only if every comparison holds."""
    try:
        return demo()
    except ColdstreamError as error:
        print(explain(error, "demo"), file=sys.stderr)  # noqa: T201 - the answer to a person
        return exit_code_of(error)
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)  # noqa: T201
        return ExitCode.INTERRUPTED


def demo() -> int:
    """All steps of the demo; 0 only if every comparison holds."""
    console = Console(stderr=True)
    started = time.monotonic()

    def step(text: str) -> None:
        console.print(f"[bold]{time.monotonic() - started:6.1f} s[/]  {text}", highlight=False)

    environment.up(ROOT, port=_port(ROOT), context=SETTINGS, progress=step)
    os.environ.update(environment.environment(ROOT))
    step("writing stream directories: segment files of real brokers, and 300 MB of our own")
    work = ROOT / ".local" / "demo"
    data_dir = work / "streams"
    expected = prepare(data_dir, ROOT / "tests" / "data")
    offsets = work / "committed.json"
    offsets.write_text(
        json.dumps({e.stream: "all" if e.committed is None else e.committed for e in expected})
    )
    queues = work / "names.json"
    queues.write_text(
        json.dumps({e.stream: {"vhost": "/", "queue": e.queue.split(" ")[0]} for e in expected})
    )
    context = connect(
        bucket=os.environ[deployment.ENV_BUCKET],
        table=os.environ[deployment.ENV_TABLE],
        prefix=os.environ[deployment.ENV_PREFIX],
    ).context()
    step("running the agent over them, once")
    agent = Agent(
        context=context,
        function=claim_function(os.environ[deployment.ENV_CLAIM_FUNCTION]),
        data_dir=data_dir,
        committed=CommittedFile(offsets),
        settings=AgentSettings(once=True),
        requests=None,
        names=read_names(queues, "demo"),
        pause=lambda attempt: time.sleep(0.02 * attempt),
    )
    progress = {p.stream: p for p in tier(agent, sum(e.size for e in expected), console)}
    step("reading every stream back through its manifest")
    table = Table(title="tiered to S3 and read back", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("stream", overflow="fold")
    for column in ("messages", "bytes", "fragments", "first", "next", "durable", "read back"):
        table.add_column(column, justify="right", overflow="fold")
    good = True
    for each in expected:
        reader = StreamReader(context.store, context.catalog, context.prefix, each.stream)
        problem = read_back(reader, each)
        root = load(context, each.stream).root
        error = progress[each.stream].error
        if problem is None and (root.first_offset, root.next_offset) != (
            each.first_offset,
            each.next_offset,
        ):
            problem = f"manifest covers {root.first_offset}..{root.next_offset}"
        if problem is None and error is not None:
            problem = str(error)
        good = good and problem is None
        seconds = progress[each.stream].durable_seconds
        table.add_row(
            each.stream,
            f"{each.messages:,}",
            f"{root.total_size:,}",
            str(root.fragments),
            str(root.first_offset),
            str(root.next_offset),
            "-" if seconds is None else f"{seconds:.1f} s",
            "identical" if problem is None else problem,
        )
    Console(width=None if sys.stdout.isatty() else 112).print(table)
    machines, did = WorkflowsDemo(context, work, step).run()
    good = good and did
    Console(width=None if sys.stdout.isatty() else 112).print(machines)
    jobs, did = JobsDemo(
        {e.stream: e.messages for e in expected},
        next(e.queue for e in expected if e.stream.startswith("__demo_big")).split(" ")[0],
        warehouse=os.environ[deployment.ENV_WAREHOUSE],
        database=os.environ[deployment.ENV_DATABASE],
        step=step,
    ).run()
    good = good and did
    Console(width=None if sys.stdout.isatty() else 112).print(jobs)
    step("every comparison holds" if good else "SOMETHING DIFFERS; see the table")
    console.print(
        "\nThe environment stays up. Go on with:\n"
        '  eval "$(.venv/bin/coldstream local env)"\n'
        "  .venv/bin/coldstream streams\n"
        "  .venv/bin/coldstream describe demo.big\n"
        "  .venv/bin/coldstream read demo.big --from last\n"
        "  .venv/bin/coldstream verify demo.big --deep\n"
        "  make down",
        highlight=False,
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
