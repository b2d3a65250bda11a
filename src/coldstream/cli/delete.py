"""`coldstream delete|undelete STREAM`: a stream's way out of the remote tier, and back."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli import workflow
from coldstream.cli.deleted import deletion
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import (
    DryRunOption,
    JsonOption,
    Where,
    duration_option,
    is_typed,
    with_options,
)
from coldstream.cli.output import many, note, print_json, print_table, size, when
from coldstream.cli.over_streams import Plans
from coldstream.cli.resolve import StreamArgument, StreamOrGone
from coldstream.cli.workflow import WorkflowsOption, default_reason, start
from coldstream.clock import now_ms
from coldstream.deployment import ENV_MANAGEMENT_URI, ENV_UNDELETE_SECONDS, execution_name
from coldstream.errors import ConflictError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.delete import reason as tombstone_reason
from coldstream.ports import ExecutionStatus, Workflows
from coldstream.quantities import parse_duration
from coldstream.remote.resolve import item_of, resolve

if TYPE_CHECKING:
    from coldstream.cli.connect import Remote
    from coldstream.plans.policy import PolicySet

DEFAULT_UNDELETE_SECONDS = 7 * 86_400
#: As the stack has it: no execution that waits, and then sweeps, takes more than a year.
MAX_UNDELETE_SECONDS = 364 * 86_400
_COLUMNS = ("stream", "state", "undelete_until", "fragments", "bytes", "execution")
_LOOKS = 5  # one a second


class HeldError(ConflictError):
    """The stream is under legal hold."""

    exit_code = ExitCode.FAILED
    why = "legal hold"
    remedy = "see `coldstream retention rules`; `coldstream retention release STREAM` ends a hold"


class NothingToUndeleteError(ConflictError):
    """The stream is in no state that an undelete could end."""

    exit_code = ExitCode.FAILED
    why = "not being deleted"
    remedy = "see its state with `coldstream streams`"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Which streams, and for how long they can be had back. Attributes: the command's options."""

    gone: Annotated[
        bool,
        typer.Option(
            "--gone", help="All streams that the broker has no more; shows which before it asks."
        ),
    ] = False
    older_than: Annotated[
        int,
        duration_option(
            "--older-than",
            "With --gone: only what has had no message for so long, by the broker's clock.",
            default="7d",
        ),
    ] = DEFAULT_UNDELETE_SECONDS
    management_uri: Annotated[
        str,
        typer.Option(
            envvar=ENV_MANAGEMENT_URI,
            help="With --gone: management API of a broker of the cluster,"
            " http://USER:PASSWORD@HOST:PORT; the user is an administrator, or has the tag"
            " monitoring and may enter every virtual host.",
        ),
    ] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    undelete: Annotated[
        int,
        duration_option(
            "--undelete",
            "How long it can be had back; no object goes before. At most what the stack has.",
            default="7d",
            most=MAX_UNDELETE_SECONDS,
            envvar=ENV_UNDELETE_SECONDS,
        ),
    ] = DEFAULT_UNDELETE_SECONDS
    dry_run: DryRunOption = False
    as_json: JsonOption = False
    workflows: WorkflowsOption = ""


@with_options
def delete(
    context: typer.Context, stream: StreamOrGone = None, *, options: DeleteOptions, where: Where
) -> None:
    """Delete a stream of the remote tier; it can be had back with `undelete` for a while.

    It writes a tombstone, which starts the state machine by itself: that waits for the undelete
    time and then deletes every object below the stream's prefix. A stream under legal hold is
    refused. Given again for a stream whose deletion was begun, it starts the machine again if that
    does not run; only then --workflows is needed.

    No object goes within a day (the stack's grace time) after the machine began, however short the
    undelete time; so long an `undelete` is possible.

    With --gone it deletes every stream for whose directory the broker has no queue, of which no
    agent tells, and to which nothing was written for a while. Streams under legal hold stay, and
    so does the directory of a queue that was declared again: delete that one by its name.

    Examples:

        coldstream delete //orders --undelete 1d --yes
        coldstream delete --gone --older-than 7d --dry-run
    """
    if options.gone is (stream is not None):
        raise InvalidInputError("give one stream, or --gone for all that the broker has no more")
    if is_typed(context, "older_than") and not options.gone:
        raise InvalidInputError("--older-than goes with --gone: one stream is deleted at any age")
    _refuse_longer(options.undelete)
    remote = where.connect()
    if stream is None:
        _delete_gone(remote, options)
    else:
        _delete_one(remote, stream, options)


def _delete_one(remote: Remote, stream: str, options: DeleteOptions) -> None:
    """Ask, and make a tombstone of a stream; of one that is there already, start its machine."""
    item = item_of(remote.catalog, resolve(remote.catalog, stream))
    policies, rules_revision = remote.policies.load()
    execution = None
    if item.state.is_tombstone:
        note(f"{item.stream} {deletion(item)}")
        machines = workflow.connect_workflows(options.workflows)
        execution = _restarted(item, machines, dry_run=options.dry_run)
    else:
        refuse_held(item, policies)
        if options.dry_run:
            until = when(now_ms() + 1000 * options.undelete)
            note(f"{item.stream} would be deleted; it could be undeleted until {until}")
        else:
            _confirm(item, yes=options.yes)
            item = _deleted(remote, item, policies, rules_revision, options.undelete)
    _print([_row(item, execution)], as_json=options.as_json, one=True)


def _refuse_longer(undelete: int) -> None:
    """See that the stack's machine waits for so many seconds, where anybody has said for how many.

    Raises:
        InvalidInputError: it gives up before.
    """
    said = os.environ.get(ENV_UNDELETE_SECONDS)
    longest = parse_duration(said) if said else undelete
    if undelete > longest:
        raise InvalidInputError(
            f"the stack's machine waits for {longest} s at most ({ENV_UNDELETE_SECONDS}), not"
            f" {undelete}: raise the setting undelete-seconds and deploy first"
        )


def _deleted(
    remote: Remote, item: CatalogItem, policies: PolicySet, rules_revision: int, undelete: int
) -> CatalogItem:
    """Make a tombstone of it; as `delete_stream`."""
    from coldstream.usecases.delete_stream import delete_stream

    item = delete_stream(
        remote.context(),
        item.stream,
        policies,
        now_ms=now_ms(),
        undelete_ms=1000 * undelete,
        rules_revision=rules_revision,
    )
    note(f"{item.stream} {deletion(item)}")
    return item


def _delete_gone(remote: Remote, options: DeleteOptions) -> None:
    """Show what is gone, ask, and make tombstones of it; what fails does not stop the others."""
    from coldstream.cli.gone import gone_streams

    policies, rules_revision = remote.policies.load()
    items = gone_streams(
        remote,
        options.management_uri,
        policies,
        now_ms=now_ms(),
        older_seconds=options.older_than,
        quiet=options.as_json,
    )
    plans, rows = Plans(), []
    if items and not options.dry_run:
        total = sum(item.total_size for item in items)
        ask(f"Delete {many(len(items), 'stream')}, {size(total)}?", yes=options.yes)
    for item in items:
        if not options.dry_run:
            try:
                item = _deleted(remote, item, policies, rules_revision, options.undelete)
            except ConflictError as error:
                plans.fail(error.located(stream=item.stream))
                continue
        rows.append(_row(item, None))
    if options.dry_run:
        note(f"{many(len(items), 'stream')} would be deleted; nothing was changed")
    if options.as_json or (rows and not options.dry_run):
        _print(rows, as_json=options.as_json)
    plans.finish()


def refuse_held(item: CatalogItem, policies: PolicySet) -> None:
    """See whether a rule holds a stream, or may hold it.

    Raises:
        HeldError: one does.
    """
    from coldstream.plans.policy import effective

    said = effective(policies, item.stream, item.name)
    held = said.hold_rules or said.unsure_holds
    if held:
        raise HeldError(
            f"the stream {'is' if said.hold else 'may be'} under legal hold by "
            f"{', '.join(held)}{'' if said.hold else ': nobody has recorded its queue'}",
            stream=item.stream,
        )


@with_options
def undelete(
    stream: StreamArgument,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Call the deletion of a stream off; it has again all that it had.

    Possible until its objects begin to go. The state machine sees it and ends.

    Example:

        coldstream undelete //orders
    """
    from coldstream.usecases.delete_stream import undelete_stream

    remote = where.connect()
    item = item_of(remote.catalog, resolve(remote.catalog, stream, state=StreamState.DELETING))
    if item.state is StreamState.DELETED:
        raise NothingToUndeleteError(f"the stream {deletion(item)}", stream=item.stream)
    if item.state is not StreamState.DELETING:
        raise NothingToUndeleteError(
            f"the stream is {item.state}, not being deleted", stream=item.stream
        )
    if dry_run:
        note(f"{item.stream} {deletion(item)}; it would be live again, and nothing was changed")
    else:
        item = undelete_stream(remote.context(), item.stream)
        note(f"{item.stream} is live again")
    _print([_row(item, None)], as_json=as_json, one=True)


def _confirm(item: CatalogItem, *, yes: bool) -> None:
    """Ask, where a person is there to answer.

    Raises:
        InvalidInputError: nobody is.
    """
    called = f" ({item.name.vhost}/{item.name.queue})" if item.name.queue else ""
    ask(
        f"Delete {item.stream}{called}, offsets {item.first_offset} to {item.next_offset}, "
        f"{item.fragments} fragments, {size(item.total_size)}?",
        yes=yes,
        stream=item.stream,
    )


def ask(question: str, *, yes: bool, stream: str | None = None) -> None:
    """Ask, where a person is there to answer.

    Raises:
        InvalidInputError: nobody is.
    """
    if yes:
        return
    if not _a_person_is_there():
        raise InvalidInputError(
            "nobody is there to confirm it: give --yes to do it all the same", stream=stream
        )
    typer.confirm(question, abort=True, err=True)


def _a_person_is_there() -> bool:
    return sys.stdin.isatty()


def _restarted(item: CatalogItem, machines: Workflows, *, dry_run: bool) -> str | None:
    """Start the machine of a tombstone again unless it runs; the name of its execution.

    Two machines on one tombstone do no harm: each step looks at the item, and what is gone is gone.
    """
    deleted = item.state is StreamState.DELETED
    revision = item.revision - 1 if deleted else item.revision  # of the tombstone
    first = execution_name("delete", item.stream, tombstone_reason(item))
    name = execution_name("delete", item.stream, default_reason())
    for each in (first, name):
        # The tombstone may be so new that the table's stream has not started its machine yet.
        looks = _LOOKS if each == first and not deleted else 1
        status = _status(machines, each, looks)
        if status is ExecutionStatus.RUNNING:
            note(f"{each} is running")
            return each
        if status is ExecutionStatus.SUCCEEDED and deleted:
            note(f"{each} has succeeded; what came later is for `coldstream collect`")
            return each
    if dry_run:
        note(f"{name} would be started")
        return None
    until = datetime.fromtimestamp(-(-item.undelete_until // 1000), UTC)  # not before
    document = {
        "work": [{"stream": item.stream, "revision": revision}],
        "undelete_until": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        "reason": "deleted again",
    }
    start(machines, "delete", name, document)
    return name


def _status(machines: Workflows, name: str, looks: int) -> ExecutionStatus | None:
    """How far an execution is; None if there is none, or none any more after 90 days."""
    for number in range(looks):
        if number:
            workflow.sleep(1)
        with suppress(NotFoundError):
            return machines.describe("delete", name).status
    return None


def _row(item: CatalogItem, execution: str | None) -> dict[str, Any]:
    return {
        "stream": item.stream,
        "state": str(item.state),
        "undelete_until": when(item.undelete_until) if item.undelete_until else None,
        "fragments": item.fragments,
        "bytes": item.total_size,
        "execution": execution,
    }


def _print(rows: list[dict[str, Any]], *, as_json: bool, one: bool = False) -> None:
    """Rows; of `one` stream its document alone as JSON."""
    if as_json:
        print_json(rows[0] if one else rows)
    else:
        print_table(rows, _COLUMNS)
