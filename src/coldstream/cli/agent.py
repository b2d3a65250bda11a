"""`coldstream agent`: the process beside a broker node."""

from __future__ import annotations

import json
import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coldstream.cli.agent_options import AgentOptions
from coldstream.cli.connect import aws_client, claim_function
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import Where, with_options
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.names import MAX_NAME, check_stream

if TYPE_CHECKING:
    from coldstream.agent.committed import CommittedOffsets
    from coldstream.agent.gate import Gate
    from coldstream.agent.members import Members
    from coldstream.agent.progress import Progress
    from coldstream.agent.run import Agent
    from coldstream.ports import ClaimFunction

agent_app = typer.Typer(
    no_args_is_help=True, help="The process beside a broker node that uploads segments."
)
_MIB = 2**20


@agent_app.callback()
@with_options
def agent() -> None:
    """The process beside a broker node that uploads committed segment data."""


@agent_app.command("run")
@with_options
def run(*, options: AgentOptions, where: Where) -> None:
    """Follow the stream directories below DATA_DIR and upload what is committed.

    Killed at any instant it loses nothing: where to go on is in the bucket and the catalog.

    Examples:
        coldstream agent run --data-dir /var/lib/rabbitmq/mnesia/rabbit@a/stream --committed all

        coldstream agent run --data-dir ./streams --committed offsets.json --once --json

        coldstream agent run --data-dir DIR --committed broker --stream-uri
        rabbitmq-stream://tier:SECRET@127.0.0.1:5552 --management-uri http://tier:SECRET@127.0.0.1:15672
    """
    line = _AgentProgress()
    gate = _gate(options) if options.committed == "broker" else None
    worker = _agent(options, where, gate, lambda rows: line.show(rows, worker.warnings))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    with ExitStack() as stack:
        if options.metrics_port is not None:
            _serve(stack, worker, options.metrics_port)
        if gate is not None:
            stack.enter_context(gate.looking(once=options.once))
        progress = worker.run()
    line.end(progress, worker.warnings)
    if worker.skipped:
        print(  # noqa: T201
            f"coldstream: left alone, no stream's name: {', '.join(sorted(worker.skipped))}",
            file=sys.stderr,
        )
    if options.as_json:
        print(json.dumps([_row(each) for each in progress]))  # noqa: T201 - stdout is for data
    failed = [each.error for each in progress if each.error is not None]
    for error in failed[1:]:
        print(f"coldstream: {_with_remedy(error)}", file=sys.stderr)  # noqa: T201
    if options.once and worker.interrupted:
        print("coldstream: stopped before everything was durable", file=sys.stderr)  # noqa: T201
        raise typer.Exit(ExitCode.INTERRUPTED)
    if failed:
        raise failed[0]


def _serve(stack: ExitStack, worker: Agent, port: int) -> None:
    """Serve the agent's metrics until the stack ends.

    Raises:
        InvalidInputError: nobody can listen there.
    """
    from coldstream.agent.metrics import AgentMetrics, serving

    metrics, report = AgentMetrics(worker.committed.limit, worker.names), worker.report

    def both(rows: list[Progress]) -> None:
        metrics.reported(rows)
        report(rows)

    worker.report = both
    stack.enter_context(serving(metrics, port))


def _gate(options: AgentOptions) -> Gate:
    """The gate at the broker of this node; nothing is sent yet.

    Raises:
        InvalidInputError: a URI is missing or none, or neither names nor a management API is given.
    """
    from coldstream.agent.gate import Gate
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.management import Management
    from coldstream.broker.node import Node

    if not options.stream_uri:
        raise InvalidInputError("--committed broker needs --stream-uri")
    if not options.management_uri and options.names is None:
        raise InvalidInputError(
            "--committed broker needs --management-uri, or --names, to know what streams are called"
        )
    management = Management.parse(options.management_uri) if options.management_uri else None
    return Gate(
        data_dir=options.directory(),
        broker=Node(StreamUri.parse(options.stream_uri), management),
        cluster=options.cluster,
        given=read_names(options.names, options.cluster) if options.names else {},
    )


def _members(options: AgentOptions, gate: Gate) -> Members | None:
    """The members of every stream; None where the operator says that this is the last copy."""
    from coldstream.agent.members import MembersOf
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.node import Node, StreamMembers

    if options.last_copy:
        return None
    # A connection of its own: the gate has another thread.
    members = StreamMembers(Node(StreamUri.parse(options.stream_uri)))
    return MembersOf(members.earliest, gate.names)


def _committed(options: AgentOptions, gate: Gate | None) -> CommittedOffsets:
    from coldstream.agent.committed import AllCommitted, CommittedFile

    if gate is not None:
        return gate
    everything = options.committed == "all"
    return AllCommitted() if everything else CommittedFile(Path(options.committed))


def _agent(
    options: AgentOptions,
    where: Where,
    gate: Gate | None,
    report: Callable[[list[Progress]], None],
) -> Agent:
    """The agent, not yet running.

    Raises:
        InvalidInputError: an option is outside its limits, or the file of names is wrong.
        As `connect`.
    """
    from coldstream.adapters.sqs import QueueCommitRequests
    from coldstream.agent.run import Agent
    from coldstream.usecases.claim_function import OwnRights

    data_dir, settings = options.directory(), options.settings(where.bucket)
    remote = where.connect()
    context = remote.context()
    names: Mapping[str, QueueName] = gate.names if gate is not None else {}
    if gate is None and options.names is not None:
        names = read_names(options.names, options.cluster)

    def pause(attempt: int) -> None:
        time.sleep(min(2.0, 0.05 * 2**attempt) * secrets.randbelow(1000) / 1000)

    function: ClaimFunction = OwnRights(context, pause, lambda: time.time_ns() // 1_000_000)
    if options.claim_function:
        function = claim_function(options.claim_function)
    return Agent(
        context=context,
        data_dir=data_dir,
        committed=_committed(options, gate),
        members=_members(options, gate) if gate is not None else None,
        settings=settings,
        requests=QueueCommitRequests(client=aws_client("sqs"), queue_url=options.queue_url)
        if options.queue_url
        else None,
        function=function,
        heartbeats=remote.heartbeats,
        names=names,
        pause=pause,
        report=report,
    )


def read_names(path: Path, cluster: str) -> dict[str, QueueName]:
    """Queue names by directory from a JSON file {directory: {"vhost": V, "queue": Q}}.

    Raises:
        InvalidInputError: the file cannot be read or says something else, or a name, be it the
            cluster's, is one that no catalog item can hold.
    """
    try:
        content = json.loads(path.read_bytes())
        names = {
            check_stream(stream): QueueName(cluster, str(name["vhost"]), str(name["queue"]))
            for stream, name in content.items()
        }
    except OSError as exc:
        raise InvalidInputError(f"cannot be read: {exc.strerror}", key=str(path)) from exc
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        raise InvalidInputError(
            'not a JSON object {directory: {"vhost": V, "queue": Q}}', key=str(path)
        ) from exc
    for stream, name in names.items():
        for part in ("cluster", "vhost", "queue"):
            text = getattr(name, part)
            if len(text) > MAX_NAME:
                trouble = f"has {len(text)} characters, more than {MAX_NAME}"
            elif any("\ud800" <= each <= "\udfff" for each in text):
                trouble = "has a surrogate"
            else:
                continue
            raise InvalidInputError(f"{part} {trouble}", stream=stream, key=str(path))
    return names


def _with_remedy(error: ColdstreamError) -> str:
    remedy = getattr(error, "remedy", None)
    return f"{error}\n  try: {remedy}" if remedy else str(error)


def _row(progress: Progress) -> dict[str, object]:
    error, standstill = progress.error, progress.standstill
    return {
        "stream": progress.stream,
        "next": progress.next_offset,
        "fragments": progress.fragments,
        "bytes": progress.bytes,
        "seconds_to_durable": progress.durable_seconds,
        "holes": [{"first": first, "next": next_offset} for first, next_offset in progress.holes],
        "notices": progress.notices,
        "standstill": None if standstill is None else asdict(standstill),
        "error": None if error is None else {"kind": error.kind, "message": str(error)},
    }


@dataclass(slots=True)
class _Told:
    """What was already said of a stream.

    Attributes:
        row: of the stream; another one is of another life of it.
        notices: how many of its notices.
        errors: the last ones.
    """

    row: Progress
    notices: int = 0
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=8))


class _AgentProgress:
    """One line on stderr that says how far all streams are; a line a minute without a terminal.

    What cannot be written, because a disk is full, is said at a later look.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._told: dict[str, _Told] = {}
        self._warned: deque[str] = deque(maxlen=64)

    def show(self, rows: Sequence[Progress], warnings: Sequence[str] = ()) -> None:
        """Say what is new, and now and then how far all streams are.

        Raises:
            OSError: stderr cannot be written.
        """
        self._told = {row.stream: self._told_of(row) for row in rows}
        for told in self._told.values():
            error = told.row.error
            if error is not None and str(error) not in told.errors:
                _say(_with_remedy(error))
                told.errors.append(str(error))
        self._tell(warnings)
        now = time.monotonic()
        if now - self._last < (0.2 if self._terminal else 60.0):
            return
        self._last = now
        self._print(rows, end="" if self._terminal else "\n")

    def _told_of(self, row: Progress) -> _Told:
        told = self._told.get(row.stream)
        return told if told is not None and told.row is row else _Told(row)

    def _tell(self, warnings: Sequence[str]) -> None:
        """Each notice once, on a line of its own: the stream goes on, but a person should know."""
        for warning in warnings:
            if warning not in self._warned:
                _say(f"WARNING: {warning}")
                self._warned.append(warning)
        for told in self._told.values():
            notices = told.row.notices
            new = notices.since(told.notices)
            for number, notice in enumerate(new, notices.total - len(new) + 1):
                _say(f"WARNING: {notice}")
                told.notices = number

    def _print(self, rows: Sequence[Progress], *, end: str) -> None:
        behind = sum(each.next_offset < each.cut_offset for each in rows)
        standing = sum(each.standstill is not None for each in rows)
        mib = sum(each.bytes for each in rows) / _MIB
        fragments = sum(each.fragments for each in rows)
        text = (
            f"{len(rows)} streams, {fragments} fragments, {mib:,.1f} MiB uploaded,"
            f" {behind} manifests behind" + (f", {standing} without progress" if standing else "")
        )
        print(  # noqa: T201
            f"\r\x1b[K{text}" if self._terminal else text,
            end=end,
            file=sys.stderr,
            flush=True,
        )

    def end(self, rows: Sequence[Progress], warnings: Sequence[str] = ()) -> None:
        """The last line holds the totals, whenever the one before it was printed."""
        with suppress(OSError, ValueError):
            self._told = {row.stream: self._told_of(row) for row in rows}
            self._tell(warnings)
            self._print(rows, end="\n")


def _say(text: str) -> None:
    print(f"\ncoldstream: {text}", file=sys.stderr, flush=True)  # noqa: T201
