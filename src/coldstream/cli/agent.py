"""`coldstream agent`: the process beside a broker node."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.adapters.settings import check_bucket, check_table
from coldstream.cli.agent_config import show_setup
from coldstream.cli.agent_log import AgentLog
from coldstream.cli.agent_options import AgentOptions, LogFormat
from coldstream.cli.agent_progress import row_of
from coldstream.cli.agent_setup import ConfigOption, InstalledConfigOption, Setup, setup_of
from coldstream.cli.connect import aws_client, check_place, claim_function
from coldstream.cli.exit_codes import ExitCode, exit_code_of
from coldstream.cli.options import Where, with_options
from coldstream.cli.output import note
from coldstream.clock import now_ms, pause
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.names import MAX_NAME, check_stream

if TYPE_CHECKING:
    from coldstream.agent.broker.committed import CommittedOffsets
    from coldstream.agent.broker.gate import Gate
    from coldstream.agent.broker.members import Members
    from coldstream.agent.steering import SteeredAgent, Steering
    from coldstream.agent.telling.progress import Progress
    from coldstream.cli.agent_service import Service
    from coldstream.ports import ClaimFunction

agent_app = typer.Typer(
    no_args_is_help=True, help="The process beside a broker node that uploads segments."
)


@agent_app.callback()
@with_options
def agent() -> None:
    """The process beside a broker node that uploads committed segment data."""


@agent_app.command("run")
@with_options
def run(
    context: typer.Context,
    config: ConfigOption = None,
    *,
    options: AgentOptions,
    where: Where,
) -> None:
    r"""Follow the stream directories below DATA_DIR and upload what is committed.

    Killed at any instant it loses nothing: where to go on is in the bucket and the catalog. It goes
    on until it is stopped; a stream that fails is told, and the exit code of SIGTERM is 0 all the
    same. With --once it ends by itself, with the exit code of the first error.

    Examples:

        coldstream agent run --data-dir /var/lib/rabbitmq/mnesia/rabbit@a/stream \
            --committed all
        coldstream agent run --config /etc/coldstream/agent.toml
        coldstream agent run --data-dir ./streams --committed offsets.json \
            --once --json
        coldstream agent run --data-dir DIR --committed broker \
            --stream-uri rabbitmq-stream://tier:SECRET@127.0.0.1:5552 \
            --management-uri http://tier:SECRET@127.0.0.1:15672
    """
    del config  # its callback has put what it says behind flags and environment
    log = AgentLog(options.log)
    setup = setup_of(context, options, where)
    early: list[int] = []
    if _reloads(setup):
        # What is loaded now takes seconds, and until then the signal would end the process.
        signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    try:
        _run(setup, log, early)
    except ColdstreamError as error:
        if options.log is not LogFormat.JSON:
            raise
        log.error(error)
        raise typer.Exit(exit_code_of(error)) from error


def _reloads(setup: Setup) -> bool:
    """Whether SIGHUP reads the file again; otherwise it ends the agent, as its terminal goes."""
    return setup.file.path is not None and not setup.options.once


def _run(setup: Setup, log: AgentLog, early: list[int]) -> None:
    """Run the agent; `early` holds what has come of SIGHUP since the file was read."""
    from coldstream.agent.steering import Steering
    from coldstream.agent.telling.notify import manager_of
    from coldstream.cli.agent_service import Service

    options = setup.options
    options.check()
    gate = _gate(options) if options.committed == "broker" else None
    committed, names = _committed(options, gate), _names(options, gate)
    settings, selection = options.settings(setup.where.bucket), setup.file.selection()
    selection.check(settings)
    # Who proves how far a stream is committed finds out what it is called.
    steering = Steering(settings, selection, names, _nobody_knows if gate is None else gate.ask)
    service = Service(
        worker=_agent(setup, gate, committed, steering),
        setup=setup,
        manager=manager_of(os.environ, os.getpid()),
        log=log,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    if _reloads(setup):
        signal.signal(signal.SIGHUP, lambda *_: service.ask_to_reload())
        if early:
            service.ask_to_reload()
    with ExitStack() as stack:
        if options.metrics_port is not None:
            _serve(stack, service, options.metrics_port, options.metrics_address)
        if not service.directory_is_there():
            return
        if gate is not None:
            stack.enter_context(gate.looking(once=options.once))
        progress = service.worker.run()
    _tell_end(service, progress)


def _nobody_knows(stream: str) -> None:
    """Without a broker, only a file says what a directory's queue is called."""


def _tell_end(service: Service, progress: list[Progress]) -> None:
    """Say what it has come to; only one run has an exit code of its streams.

    Raises:
        ColdstreamError: the first one that stopped a stream, of one run.
    """
    worker, options, log = service.worker, service.setup.options, service.log
    service.progress.end(progress, service.warnings())
    if worker.skipped:
        log.info("skipped", f"left alone, no stream's name: {', '.join(sorted(worker.skipped))}")
    if options.as_json:
        print(json.dumps([row_of(each) for each in progress]))  # noqa: T201 - stdout is for data
    if not options.once:
        return
    failed = [each.error for each in progress if each.error is not None]
    for error in failed[1:]:
        log.error(error)
    if worker.interrupted:
        log.info("interrupted", "stopped before everything was durable")
        raise typer.Exit(ExitCode.INTERRUPTED)
    if failed:
        raise failed[0]


@agent_app.command("config")
@with_options
def config(
    context: typer.Context,
    config: InstalledConfigOption = None,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print every key, its value, and who has said it."),
    ] = False,
    *,
    options: AgentOptions,
    where: Where,
) -> None:
    """Check the settings of an agent, or show them; nothing is sent.

    Takes the options of `agent run`, and reads the same environment. Passwords are not shown.

    Examples:

        coldstream agent config --config /etc/coldstream/agent.toml
        coldstream agent config --show
    """
    del config
    setup = setup_of(context, options, where)
    if show:
        show_setup(setup)
    else:
        _check(setup)
        note(f"{setup.file.path or 'the command line'}: nothing is wrong with it")


def _check(setup: Setup) -> None:
    """See whatever can be seen without sending anything: what is there, then what is missing.

    Raises:
        InvalidInputError: a setting is missing or wrong.
        MisconfiguredError: a name that no bucket or table can have.
    """
    options, where = setup.options, setup.where
    # A file that is not finished yet can be wrong already.
    options.check_given()
    setup.file.selection().check(options.settings(where.bucket))
    _check_given(options, where)
    options.check()
    check_place(bucket=where.bucket, table=where.table, prefix=where.prefix)
    gate = _gate(options) if options.committed == "broker" else None
    _committed(options, gate), _names(options, gate)


def _check_given(options: AgentOptions, where: Where) -> None:
    """See that names and addresses are some, as far as they are given; raises as `_check`."""
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.management import Management

    if where.bucket:
        check_bucket(where.bucket)
    if where.table:
        check_table(where.table)
    if options.stream_uri:
        StreamUri.parse(options.stream_uri)
    if options.management_uri:
        Management.parse(options.management_uri)
    if options.names is not None:
        read_names(options.names, options.cluster)


def _serve(stack: ExitStack, service: Service, port: int, address: str) -> None:
    """Serve the agent's metrics until the stack ends.

    Raises:
        InvalidInputError: nobody can listen there.
    """
    from coldstream.agent.telling.metrics import AgentMetrics, serving

    worker = service.worker
    metrics = AgentMetrics(worker.figures, worker.names)
    service.listeners.append(metrics.reported)
    stack.enter_context(serving(metrics, port, address))


def _gate(options: AgentOptions) -> Gate:
    """The gate at the broker of this node; nothing is sent yet.

    Raises:
        InvalidInputError: a URI is none, or the file of names is wrong.
    """
    from coldstream.agent.broker.gate import Gate
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.management import Management
    from coldstream.broker.node import Node

    management = Management.parse(options.management_uri) if options.management_uri else None
    return Gate(
        data_dir=options.directory(),
        broker=Node(StreamUri.parse(options.stream_uri), management),
        cluster=options.cluster,
        given=read_names(options.names, options.cluster) if options.names else {},
    )


def _members(options: AgentOptions, gate: Gate) -> Members | None:
    """The members of every stream; None where the operator says that this is the last copy."""
    from coldstream.agent.broker.members import MembersOf
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.management import Management
    from coldstream.broker.node import Node, StreamMembers

    if options.last_copy:
        return None
    management = Management.parse(options.management_uri) if options.management_uri else None
    # A connection of its own: the gate has another thread.
    members = StreamMembers(Node(StreamUri.parse(options.stream_uri), management))
    return MembersOf(members, gate.names)


def _committed(options: AgentOptions, gate: Gate | None) -> CommittedOffsets:
    from coldstream.agent.broker.committed import AllCommitted, CommittedFile

    if gate is not None:
        return gate
    everything = options.committed == "all"
    return AllCommitted() if everything else CommittedFile(Path(options.committed))


def _names(options: AgentOptions, gate: Gate | None) -> Mapping[str, QueueName]:
    """Queue of each directory, as far as it is known; with a gate it grows."""
    if gate is not None:
        return gate.names
    return read_names(options.names, options.cluster) if options.names is not None else {}


def _agent(
    setup: Setup, gate: Gate | None, committed: CommittedOffsets, steering: Steering
) -> SteeredAgent:
    """The agent, not yet running.

    Raises:
        As `connect`.
    """
    from coldstream.adapters.s3_send import Sender
    from coldstream.adapters.sqs import QueueCommitRequests
    from coldstream.adapters.wire import Waits
    from coldstream.agent.sending.lanes import Valve
    from coldstream.agent.steering import Steered, SteeredAgent
    from coldstream.usecases.claim_function import OwnRights

    options = setup.options
    valve = Valve(options.upload_rate)
    waits = Waits(stall=options.upload_stall, answer=options.upload_answer)
    remote = setup.where.connect(Sender(waits, valve, valve.ended))
    context = remote.context()

    function: ClaimFunction = OwnRights(context, pause, now_ms)
    if options.claim_function:
        function = claim_function(options.claim_function)
    return SteeredAgent(
        context=context,
        data_dir=options.directory(),
        committed=committed,
        members=_members(options, gate) if gate is not None else None,
        settings=steering.settings,
        requests=QueueCommitRequests(client=aws_client("sqs"), queue_url=options.queue_url)
        if options.queue_url
        else None,
        function=function,
        heartbeats=remote.heartbeats,
        names=steering.names,
        pause=pause,
        host=Steered(steering),
        valve=valve,
        steering=steering,
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
