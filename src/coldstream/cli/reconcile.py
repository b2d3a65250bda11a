"""`coldstream reconcile [STREAM]`: heal manifests whose events were lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.options import DryRunOption, Where, with_options
from coldstream.cli.output import many, note, print_json, print_table, yes_no
from coldstream.cli.over_streams import Plans, plan_each, scanned
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import OptionalStream
from coldstream.cli.workflow import WorkflowOptions, run_workflow
from coldstream.errors import InvalidInputError
from coldstream.names import stream_prefix

_COLUMNS = ("stream", "first", "next", "fragments", "bytes", "refused", "adopt")


@with_options
def reconcile(
    stream: OptionalStream = None,
    dry_run: DryRunOption = False,
    *,
    options: WorkflowOptions,
    where: Where,
) -> None:
    """Append uploads to the manifests of streams whose events were lost.

    A schedule does this every few minutes. With --dry-run it lists the streams whose uploads are
    ahead of their manifest, from which offset to which, and the fragments that would be refused.
    A stream whose item was lost or restored with the table is marked `adopt`: it gets the newest
    root of the bucket back first.

    Example:

        coldstream reconcile --dry-run --json
    """
    remote = where.connect()
    if dry_run:
        _print(_plan(remote, stream), as_json=options.as_json)
        return
    machines = options.connect()
    name = _chosen(remote, stream) if stream else ""
    run_workflow(remote, machines, "reconcile", name, options)


def _plan(remote: Remote, stream: str | None) -> Plans:
    from coldstream.plans.policy import PolicySet
    from coldstream.usecases.ahead import ahead
    from coldstream.usecases.scan import ScanFor

    context, _ = read_only(remote)
    plans = Plans()

    def act(name: str) -> dict[str, Any] | None:
        if _foreign(remote, name):
            nothing: dict[str, Any] = {
                "first": None,
                "next": None,
                "fragments": 0,
                "bytes": 0,
                "refused": [],
            }
            return {"stream": name, **nothing, "adopt": True}
        found = ahead(context, name)
        if not (found.fragments or found.refused or stream):
            return None
        return {
            "stream": name,
            "first": found.first_offset,
            "next": found.next_offset,
            "fragments": found.fragments,
            "bytes": found.bytes,
            "refused": [
                {"key": error.key, "offset": error.offset, "problem": error.reason}
                for error in found.refused
            ],
            "adopt": False,
        }

    if stream:
        plans.rows = list(filter(None, [act(_chosen(remote, stream))]))
    else:
        found = scanned(context, ScanFor.RECONCILE, PolicySet(), plans)
        plan_each(found, act, plans)
    return plans


def _foreign(remote: Remote, stream: str) -> bool:
    """Whether the stream's item is not this table's, so that it must be adopted first."""
    item = remote.catalog.get(stream)
    return item is None or item.table_id != remote.catalog.table_id()


def _chosen(remote: Remote, text: str) -> str:
    """The directory name; also of a stream that only the bucket knows.

    Raises:
        As `workable`.
    """
    with suppress(InvalidInputError):
        under = stream_prefix(remote.prefix, text)
        if _foreign(remote, text) and remote.store.list(under, limit=1):
            return text
    return workable(remote.catalog, text)


def _print(plans: Plans, *, as_json: bool) -> None:
    if as_json:
        print_json(plans.rows)
    else:
        rows = (
            {**row, "refused": len(row["refused"]), "adopt": yes_no(row["adopt"])}
            for row in plans.rows
        )
        print_table(rows, _COLUMNS)
        for row in plans.rows:
            for refused in row["refused"]:
                note(f"{refused['problem']} (offset {refused['offset']}, {refused['key']})")
        ahead = sum(bool(row["fragments"]) for row in plans.rows)
        note(f"{many(ahead, 'stream')} with uploads ahead of the manifest")
    plans.finish()
