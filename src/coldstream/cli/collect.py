"""`coldstream collect [STREAM]`: objects that nothing refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.options import Where, duration_option, is_typed, with_options
from coldstream.cli.output import many, note, plain, print_json, print_table, yes_no
from coldstream.cli.over_streams import Plans, plan_each, scanned
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import OptionalStream
from coldstream.cli.workflow import WorkflowOptions, run_workflow
from coldstream.clock import now_ms
from coldstream.deployment import ENV_GRACE_SECONDS
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import StreamState
from coldstream.remote.resolve import item_of

if TYPE_CHECKING:
    from coldstream.usecases.collect import Collection

DEFAULT_GRACE_SECONDS = 86_400
_COLUMNS = ("stream", "kind", "objects", "bytes", "garbage", "meaning")


@with_options
def collect(
    context: typer.Context,
    stream: OptionalStream = None,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Start the state machine, which deletes what it can prove garbage."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only look, from here; so it is without --delete.")
    ] = False,
    grace: Annotated[
        int,
        duration_option(
            "--grace",
            "How long something must have been garbage, as the stack has it; only for a look.",
            default="1d",
            envvar=ENV_GRACE_SECONDS,
        ),
    ] = DEFAULT_GRACE_SECONDS,
    *,
    options: WorkflowOptions,
    where: Where,
) -> None:
    """Look for objects that nothing refers to; with --delete let those go that are proved garbage.

    Without --delete nothing is written. It prints what there is, by kind, with objects and bytes;
    how much garbage still waits for its proof (too young, or not yet seen a grace time ago); how
    much is provable now; and the keys of what is kept for a person: fragments with chunks that the
    manifest lacks (unique), and keys that are not ours (foreign).

    Examples:

        coldstream collect //orders
        coldstream collect --delete
    """
    if delete and dry_run:
        raise InvalidInputError("--delete and --dry-run exclude each other")
    if delete and is_typed(context, "grace"):
        raise InvalidInputError("--grace is for a look: deletes go by the grace time of the stack")
    remote = where.connect()
    if not delete:
        _print(_plan(remote, stream, 1000 * grace), as_json=options.as_json)
        return
    machines = options.connect()
    name = workable(remote.catalog, stream, deleted_too=True) if stream else ""
    run_workflow(remote, machines, "collect", name, options)


def _plan(remote: Remote, stream: str | None, grace_ms: int) -> Plans:
    from coldstream.plans.policy import PolicySet
    from coldstream.usecases.scan import ScanFor

    plans = Plans()

    def act(name: str) -> dict[str, Any]:
        found = _Looked(name)
        found.look(remote, grace_ms)
        return found.document()

    if stream:
        plans.rows = [act(workable(remote.catalog, stream, deleted_too=True))]
    else:
        found = scanned(remote, ScanFor.COLLECT, PolicySet(), plans)
        plan_each(found, act, plans)
    return plans


class _Looked:
    """What the steps of one look say together."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._kinds: dict[str, dict[str, Any]] = {}
        self._waiting = {"objects": 0, "bytes": 0}
        self._provable = {"objects": 0, "bytes": 0}
        self._unique: list[str] = []
        self._foreign: list[str] = []

    def look(self, remote: Remote, grace_ms: int) -> None:
        """Go over the stream's whole listing, page by page."""
        from coldstream.usecases.collect import collect as step
        from coldstream.usecases.stragglers import sweep_stragglers

        context, deleter = read_only(remote)
        begin, cursor = now_ms(), None
        if item_of(context.catalog, self._stream).state is StreamState.DELETED:
            self._add(
                sweep_stragglers(
                    context,
                    deleter,
                    self._stream,
                    grace_ms=grace_ms,
                    run_ms=begin,
                    now_ms=begin,
                    held=lambda _: False,  # a look deletes nothing
                    dry_run=True,
                )
            )
            return
        while True:
            done = step(
                context,
                deleter,
                self._stream,
                grace_ms=grace_ms,
                run_ms=begin,
                now_ms=begin,
                cursor=cursor,
                held=lambda _: False,  # a look deletes nothing
                dry_run=True,
            )
            self._add(done)
            cursor = done.cursor
            if cursor is None:
                return

    def _add(self, done: Collection) -> None:
        for kind, count in done.found.items():
            row = self._kinds.setdefault(
                str(kind),
                {"objects": 0, "bytes": 0, "garbage": kind.garbage, "meaning": kind.meaning},
            )
            row["objects"] += count.objects
            row["bytes"] += count.bytes
        for sums, count in ((self._waiting, done.waiting), (self._provable, done.provable)):
            sums["objects"] += count.objects
            sums["bytes"] += count.bytes
        self._unique += done.unique
        self._foreign += done.foreign

    def document(self) -> dict[str, Any]:
        return {
            "stream": self._stream,
            "found": self._kinds,
            "waiting": self._waiting,
            "provable": self._provable,
            "unique": self._unique,
            "foreign": self._foreign,
        }


def _print(plans: Plans, *, as_json: bool) -> None:
    if as_json:
        print_json(plans.rows)
        plans.finish()
        return
    rows = [
        {
            "stream": each["stream"],
            "kind": kind,
            **row,
            "garbage": yes_no(row["garbage"]),
        }
        for each in plans.rows
        for kind, row in each["found"].items()
    ]
    print_table(rows, _COLUMNS)
    for each in plans.rows:
        for what in ("waiting", "provable"):
            if each[what]["objects"]:
                note(
                    f"{each['stream']}: {many(each[what]['objects'], 'object')} of garbage, "
                    f"{each[what]['bytes']} bytes: {_WORDS[what]}"
                )
        for what in ("unique", "foreign"):
            for key in each[what]:
                note(f"{what}: {plain(key)}")
    plans.finish()


_WORDS = {
    "waiting": "not proved yet",
    "provable": "provable now, --delete lets it go",
}
