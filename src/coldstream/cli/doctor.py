"""`coldstream doctor`: whether an agent could do its work on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.agent import read_names
from coldstream.cli.agent_options import AgentOptions
from coldstream.cli.agent_setup import ConfigOption
from coldstream.cli.connect import aws_client, claim_function
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import Where, with_options
from coldstream.cli.output import many, note, plain, print_json
from coldstream.cli.report import ConfigurationError
from coldstream.clock import now_ms, pause
from coldstream.errors import ColdstreamError

if TYPE_CHECKING:
    from coldstream.adapters.place import Remote
    from coldstream.agent.doctor.findings import Check, Finding
    from coldstream.agent.doctor.services import Rights
    from coldstream.ports import ClaimFunction

#: Without these a probe cannot arrive, and each would be waited for again.
_NEEDED = frozenset({"bucket", "table", "claim function"})
_SETTINGS = "see `coldstream doctor --help`, and the outputs of the stack"


@with_options
def doctor(
    probe: Annotated[
        bool,
        typer.Option(
            "--probe/--no-probe",
            help="Upload one small message to a stream of this node's own, and see it arrive.",
        ),
    ] = True,
    samples: Annotated[
        int, typer.Option(min=1, max=1000, help="Streams whose files and last chunks are tried.")
    ] = 5,
    config: ConfigOption = None,
    *,
    options: AgentOptions,
    where: Where,
) -> None:
    r"""Look whether an agent with these options could do its work on this machine.

    Each line is `ok`, `warning` or `FAILED`, and says what to do. The exit code is 0 if nothing
    failed, and 1 otherwise. Nothing is changed, except by the probe.

    Examples:

        coldstream doctor --config /etc/coldstream/agent.toml
        coldstream doctor --data-dir /var/lib/rabbitmq/mnesia/rabbit@a/stream \
            --committed broker
    """
    del config  # its callback has put what it says behind flags and environment
    findings = []
    for finding in _findings(options, where, probe=probe, samples=samples):
        findings.append(finding)
        if not options.as_json:
            _show(finding)
    counts = {
        level: sum(each.level == level for each in findings)
        for level in ("ok", "warning", "FAILED")
    }
    if options.as_json:
        print_json({"ok": not counts["FAILED"], "checks": [_row(each) for each in findings]})
    note(
        f"{counts['ok']} ok, {many(counts['warning'], 'warning')}, {counts['FAILED']} failed"
        + ("" if probe else "; no probe was made, so nobody knows whether uploads arrive")
    )
    if counts["FAILED"]:
        raise typer.Exit(ExitCode.FAILED)


def _findings(
    options: AgentOptions, where: Where, *, probe: bool, samples: int
) -> Iterator[Finding]:
    """What all checks find, as they find it; a setting that is wrong fails for itself alone."""
    from coldstream.agent.doctor.findings import of_error, perform, warning

    whole = True
    for part in (_of_machine, _of_broker):
        try:
            checks = part(options, samples)
        except ColdstreamError as exc:
            whole = False
            yield of_error("settings", exc, _SETTINGS)
        else:
            yield from perform(checks)
    try:
        remote = where.connect()
    except ColdstreamError as exc:
        yield of_error("settings", exc, _SETTINGS)
        return
    try:
        function = claim_function(options.claim_function) if options.claim_function else None
        rights = rights_of(remote, options)
    except ColdstreamError as exc:
        yield of_error("settings", exc, _SETTINGS)
        return
    for finding in perform(_of_services(remote, options, function, rights)):
        whole = whole and (finding.level != "FAILED" or finding.about not in _NEEDED)
        yield finding
    if probe and whole:
        yield from perform([_probe(remote, options, function)])
    elif probe:
        said = "none was made, because of what failed above"
        yield warning("probe", said, "mend that, and run this again")


def _of_machine(options: AgentOptions, samples: int) -> list[Check]:
    """The checks of this machine.

    Raises:
        InvalidInputError: no directory is given.
    """
    from coldstream.agent.doctor import machine
    from coldstream.agent.doctor.findings import Check

    data_dir = options.directory()
    remedy = "run this as the agent's user"
    return [
        Check("data directory", lambda: machine.look_at_directory(data_dir, most=samples), remedy),
        Check(
            "clock and broker",
            lambda: machine.look_at_chunks(data_dir, most=samples, now_ms=now_ms),
            remedy,
        ),
    ]


def _of_broker(options: AgentOptions, samples: int) -> list[Check]:
    """The checks of the broker, or of what stands for it.

    Raises:
        InvalidInputError: an option is none, or a file cannot be read.
    """
    from coldstream.agent.broker.committed import CommittedFile
    from coldstream.agent.doctor.broker import BrokerChecks
    from coldstream.agent.doctor.findings import Check, ok
    from coldstream.broker.connection import StreamUri
    from coldstream.broker.management import Management

    given = read_names(options.names, options.cluster) if options.names else {}
    if options.committed == "all":
        said = "you say that all of it is; no broker is asked"
        return [Check("committed", lambda: [ok("committed", said)], "")]
    if not options.committed:
        raise ConfigurationError(
            "--committed is missing, and nothing is proved without it",
            remedy="set it to broker",
        )
    if options.committed != "broker":
        file = CommittedFile(Path(options.committed))
        count = len(file.named())
        said = f"{options.committed} tells of {many(count, 'stream')}"
        return [Check("committed", lambda: [ok("committed", said)], "")]
    if not options.stream_uri:
        raise ConfigurationError(
            "--committed broker needs --stream-uri",
            remedy="set it to rabbitmq-stream://USER:PASSWORD@HOST:PORT of this node's broker",
        )
    if not options.management_uri and not given:
        raise ConfigurationError(
            "--committed broker needs --management-uri, or --names, to know the streams' queues",
            remedy="set it to http://USER:PASSWORD@HOST:PORT of the management API",
        )
    management = Management.parse(options.management_uri) if options.management_uri else None
    uri = StreamUri.parse(options.stream_uri)
    return BrokerChecks(uri, management, options.directory(), given, samples).checks()


def rights_of(remote: Remote, options: AgentOptions) -> Rights:
    """What asks for the rights in AWS.

    Raises:
        ConfigurationError: as `aws_client`.
    """
    from coldstream.adapters.place import Patience
    from coldstream.adapters.rights import AwsRights
    from coldstream.adapters.sessions import new_session

    quick = Patience(3, 5, 1)
    return AwsRights(
        session=new_session(),
        dynamodb=aws_client("dynamodb", patience=quick),
        sqs=aws_client("sqs", patience=quick),
        table=remote.place.table,
        prefix=remote.prefix,
        queue_url=options.queue_url,
    )


def _of_services(
    remote: Remote, options: AgentOptions, function: ClaimFunction | None, rights: Rights
) -> list[Check]:
    """The checks of AWS."""
    from coldstream.agent.doctor.services import RightsChecks, TierChecks

    node = options.node or gethostname()
    return [
        *RightsChecks(rights, node, bool(options.queue_url)).checks(),
        *TierChecks(remote.context(), node, function).checks(),
    ]


def _probe(remote: Remote, options: AgentOptions, function: ClaimFunction | None) -> Check:
    """The probe; without a function the agent claims and commits itself, and so does this."""
    from coldstream.agent.doctor.probe import Probe
    from coldstream.usecases.claim_function import OwnRights

    context = remote.context()
    does = function or OwnRights(context, pause, now_ms)
    return Probe(context, does, options.node or gethostname(), pause, now_ms).check()


def _show(finding: Finding) -> None:
    seconds = f" [{finding.seconds:.2f} s]" if finding.seconds is not None else ""
    sys.stdout.write(f"{finding.level:<8} {finding.about}: {plain(finding.said)}{seconds}\n")
    if finding.remedy:
        sys.stdout.write(f"         try: {plain(finding.remedy)}\n")
    sys.stdout.flush()


def _row(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.about,
        "level": str(finding.level),
        "message": finding.said,
        "try": finding.remedy or None,
        "seconds": None if finding.seconds is None else round(finding.seconds, 3),
    }
