"""Start the execution of a workflow and follow it to its end: what all workflow commands share."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from coldstream import errors
from coldstream.cli.connect import Remote, aws_client
from coldstream.cli.exit_codes import BY_KIND, ExitCode
from coldstream.cli.options import JsonOption
from coldstream.cli.output import many, note, plain, print_json, print_section, print_table, yes_no
from coldstream.cli.report import ConfigurationError
from coldstream.deployment import ENV_WORKFLOWS, OUTPUT_WORKFLOWS, check_reason, execution_name
from coldstream.errors import ColdstreamError, ConflictError, NotFoundError, UnavailableError
from coldstream.manifest.catalog import CatalogItem
from coldstream.ports import Execution, ExecutionStatus, Workflows

WorkflowsOption = Annotated[
    str,
    typer.Option(
        "--workflows",
        envvar=ENV_WORKFLOWS,
        help="What the ARNs of the stack's state machines begin with.",
        rich_help_panel="Where",
    ),
]


@dataclass(frozen=True, slots=True)
class WorkflowOptions:
    """How a command starts a workflow, and how it tells of it.

    Attributes:
        reason: ends the execution's name; "" for this minute.
        no_wait: whether to leave it alone once it is started.
        as_json: print JSON, of a dry run, too.
        workflows: what the ARNs of the machines begin with.
    """

    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            help="Ends the execution's name: what ran for this reason in the last 90 days is not "
            "started again. Up to 34 letters, digits, - and _.",
            show_default="cli-yyyymmddThhmm, this minute in UTC",
        ),
    ] = ""
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Print the execution's name and do not wait for its end."),
    ] = False
    as_json: JsonOption = False
    workflows: WorkflowsOption = ""

    def __post_init__(self) -> None:
        if self.reason:  # also of a dry run, which is what people try a command line with
            check_reason(self.reason)

    def connect(self) -> Workflows:
        """The state machines of the stack; nothing is sent yet.

        Raises:
            As `connect_workflows`.
        """
        return connect_workflows(self.workflows)


#: Stands for the stream in the name of an execution on all of them.
ALL_STREAMS = "all"
_ARN_PREFIX = re.compile(r"arn:[a-z0-9-]+:states:[a-z0-9-]+:[0-9]*:stateMachine:[A-Za-z0-9_-]*")
_REMEDY = (
    f"set {ENV_WORKFLOWS}, or --workflows, to the stack's output {OUTPUT_WORKFLOWS}; on one "
    'machine: eval "$(coldstream local env)"'
)
#: Step Functions may not know an execution for a moment after it has been started.
_MAX_UNANSWERED = 10
_LONGEST_CAUSE = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds between two looks

sleep, clock = time.sleep, time.monotonic


class WorkflowFailedError(ColdstreamError):
    """An execution ended in another way than it should.

    Args:
        message: names the error, and why.
        exit_code: that of the error behind it.
        why: name of the error behind it.
    """

    remedy = "see the functions' logs; every step can be repeated, so just run the command again"

    def __init__(
        self,
        message: str,
        *,
        exit_code: ExitCode = ExitCode.FAILED,
        why: str = "workflow failed",
        **place: Any,
    ) -> None:
        super().__init__(message, **place)
        self.exit_code = exit_code
        self.why = why


class StartedBeforeError(ConflictError):
    """An execution of this name exists, so nothing was started."""

    why = "started before for this reason"
    remedy = "wait a minute, or give another reason where the command has --reason"


def connect_workflows(arn_prefix: str) -> Workflows:
    """The state machines of the stack; nothing is sent yet.

    Raises:
        ConfigurationError: the setting is missing or malformed.
    """
    if not arn_prefix:
        raise ConfigurationError(f"no {ENV_WORKFLOWS} is set", remedy=_REMEDY)
    if not _ARN_PREFIX.fullmatch(arn_prefix):
        raise ConfigurationError(
            f"not what the ARN of a state machine begins with: {arn_prefix[:100]!r}", remedy=_REMEDY
        )
    from coldstream.adapters.stepfunctions import StepFunctionsWorkflows

    client = aws_client("stepfunctions")
    return StepFunctionsWorkflows(client=client, arn_prefix=arn_prefix)


def default_reason() -> str:
    """This minute, so that a command that is sent twice starts its workflow once."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M}"


def run_workflow(
    remote: Remote,
    workflows: Workflows,
    workflow: str,
    stream: str,
    options: WorkflowOptions,
) -> None:
    """Start a workflow, follow it unless told otherwise, and print what it gave.

    Args:
        remote: for what the catalog says before and after.
        workflows: the machines.
        workflow: which.
        stream: directory name; "" for all streams.
        options: of the command.

    Raises:
        StartedBeforeError: an execution of this name exists.
        WorkflowFailedError: it failed, timed out or was aborted.
        As the `Workflows` port.
    """
    reason = options.reason or default_reason()
    name = execution_name(workflow, stream or ALL_STREAMS, reason)
    work = {"work": [{"stream": stream}]} if stream else {}
    before = remote.catalog.get(stream) if stream else None
    start(workflows, workflow, name, {**work, "reason": reason})
    if options.no_wait:
        if options.as_json:
            print_json({"workflow": workflow, "execution": name, "status": "running"})
        else:
            sys.stdout.write(f"{name}\n")
        return
    output = follow(workflows, workflow, name)
    after = remote.catalog.get(stream) if stream else None
    failed = _total(output.get("failed"))
    if "failed" in output:
        output = {**output, "failed": failed}
    _tell(workflow, name, output, before, after, as_json=options.as_json)
    if failed:
        raise WorkflowFailedError(f"{workflow} could not be done on {many(failed, 'stream')}")


def start(workflows: Workflows, workflow: str, name: str, document: Mapping[str, Any]) -> None:
    """Start an execution.

    Raises:
        StartedBeforeError: one of this name exists; the message says how far it is.
        ConfigurationError: there is no such machine.
        As `Workflows.start`.
    """
    try:
        started = workflows.start(workflow, name, document)
    except NotFoundError as exc:
        raise ConfigurationError(
            f"there is no state machine for {workflow}", remedy=_REMEDY
        ) from exc
    if started:
        note(f"started {name}")
        return
    try:
        state = f"it {_WORDS[workflows.describe(workflow, name).status]}"
    except ColdstreamError:
        state = "how far it is cannot be seen now"
    raise StartedBeforeError(f"{name} was started before; {state}")


def follow(workflows: Workflows, workflow: str, name: str) -> dict[str, Any]:
    """Wait until an execution has ended; give its output.

    Raises:
        WorkflowFailedError: it failed, timed out or was aborted.
        UnavailableError, NotFoundError: Step Functions gave no answer many times in a row.
    """
    line, pause, unanswered = _WorkflowProgress(workflow), _FIRST_PAUSE, 0
    try:
        while True:
            try:
                found = workflows.describe(workflow, name)
            except (NotFoundError, UnavailableError):
                unanswered += 1
                if unanswered >= _MAX_UNANSWERED:
                    raise
            else:
                unanswered = 0
                if found.status is not ExecutionStatus.RUNNING:
                    break
            line.show()
            sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)
    except KeyboardInterrupt:
        note(f"\n{name} goes on by itself")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    line.end(found.status)
    if found.status is not ExecutionStatus.SUCCEEDED:
        raise _failure(name, found)
    return found.output if isinstance(found.output, dict) else {"output": found.output}


_WORDS = {
    ExecutionStatus.RUNNING: "is running",
    ExecutionStatus.SUCCEEDED: "has succeeded",
    ExecutionStatus.FAILED: "has failed",
    ExecutionStatus.TIMED_OUT: "was too slow and timed out",
    ExecutionStatus.ABORTED: "was aborted",
}


def _total(failed: object) -> int:
    """How many streams a run could not do; machines that go over many give nested lists."""
    if isinstance(failed, list):
        return sum(_total(each) for each in failed)
    return failed if isinstance(failed, int) else 0


def _failure(name: str, found: Execution) -> WorkflowFailedError:
    """The error behind a failed execution; a step's exception has the name of its class."""
    kind = getattr(getattr(errors, found.error, None), "kind", None)
    code = BY_KIND[kind] if isinstance(kind, errors.ErrorKind) else ExitCode.FAILED
    said = ": ".join(filter(None, (found.error, _cause(found.cause))))
    return WorkflowFailedError(
        f"{name} {_WORDS[found.status]}{f': {said}' if said else ''}",
        exit_code=code,
        why=str(kind or found.status),
    )


def _cause(text: str) -> str:
    """A cause in words: Lambda wraps the message of an exception in JSON, with a stack trace."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    said = document.get("errorMessage") if isinstance(document, dict) else None
    return plain(" ".join((said if isinstance(said, str) else text).split())[:_LONGEST_CAUSE])


def _tell(
    workflow: str,
    name: str,
    output: dict[str, Any],
    before: CatalogItem | None,
    after: CatalogItem | None,
    *,
    as_json: bool,
) -> None:
    looks = {"before": _summary(before), "after": _summary(after)} if before and after else {}
    if as_json:
        document = {"workflow": workflow, "execution": name, "status": "succeeded"}
        print_json({**document, "output": output, **looks})
        return
    said = {
        key: yes_no(value) if isinstance(value, bool) else value
        for key, value in output.items()
        if value not in ("", None)
    }
    print_section(workflow.upper(), {"execution": name, "status": "succeeded", **said})
    if looks:
        rows = [{"catalog": moment, **summary} for moment, summary in looks.items()]
        print_table(rows, tuple(rows[0]))


def _summary(item: CatalogItem | None) -> dict[str, Any]:
    if item is None:
        return {}
    return {
        "version": item.version,
        "first": item.first_offset,
        "next": item.next_offset,
        "fragments": item.fragments,
        "bytes": item.total_size,
    }


class _WorkflowProgress:
    """How long it has been running, on stderr; a line a minute where that is no terminal."""

    def __init__(self, workflow: str) -> None:
        self._workflow = workflow
        self._terminal = sys.stderr.isatty()
        self._begin = clock()
        self._last = 0.0

    def show(self) -> None:
        seconds = clock() - self._begin
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{self._workflow}: running for {seconds:.0f} s")
            sys.stderr.flush()
        elif seconds - self._last >= 60:
            self._last = seconds
            note(f"{self._workflow}: running for {seconds:.0f} s")

    def end(self, status: ExecutionStatus) -> None:
        """The last line says how it ended, and when."""
        clear = "\r\x1b[K" if self._terminal else ""
        note(f"{clear}{self._workflow}: {status} after {clock() - self._begin:.0f} s")
