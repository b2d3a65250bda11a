"""`coldstream retention run|plan`: move first offsets forward as the rules ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from coldstream.cli import rules
from coldstream.cli.connect import Remote
from coldstream.cli.deleted import workable
from coldstream.cli.options import DryRunOption, JsonOption, Where, with_options
from coldstream.cli.output import many, note, print_json, print_table, when
from coldstream.cli.over_streams import Plans, items, no_pause, plan_each
from coldstream.cli.read_only import read_only
from coldstream.cli.resolve import OptionalStream
from coldstream.cli.workflow import WorkflowOptions, run_workflow
from coldstream.clock import now_ms
from coldstream.manifest.catalog import StreamState

if TYPE_CHECKING:
    from coldstream.usecases.retention import RetentionReport

app = typer.Typer(help="How long streams are kept, and what must not go.", no_args_is_help=True)
_COLUMNS = (
    "stream",
    "first",
    "next",
    "reason",
    "rule",
    "fragments",
    "bytes",
    "first_time",
    "last_time",
)


@app.command("plan")
@with_options
def plan(
    stream: OptionalStream = None,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Print what retention would take now, and why; writes nothing.

    A line for each range of offsets that goes, with the limit that it breaks (reason) and the rule
    that sets the limit, and one for what stays. A stream under legal hold says which rules hold it.
    Without STREAM only streams of which something goes, or which are held, are listed.

    Example:

        coldstream retention plan //orders
    """
    _print(_plan(where.connect(), stream), as_json=as_json)


@app.command("run")
@with_options
def run(
    stream: OptionalStream = None,
    dry_run: DryRunOption = False,
    *,
    options: WorkflowOptions,
    where: Where,
) -> None:
    """Take what the rules ask for out of the manifests; `collect` deletes the objects later.

    A schedule does this every hour.

    Example:

        coldstream retention run //orders --dry-run
    """
    remote = where.connect()
    if dry_run:
        _print(_plan(remote, stream), as_json=options.as_json)
        return
    machines = options.connect()
    name = workable(remote.catalog, stream) if stream else ""
    run_workflow(remote, machines, "retention", name, options)


app.command("rules")(rules.rules)
app.command("hold")(rules.hold)
app.command("release")(rules.release)


def _plan(remote: Remote, stream: str | None) -> Plans:
    from coldstream.plans.policy import effective
    from coldstream.plans.retention import RetentionLimits, may_be_due
    from coldstream.usecases.retention import retain

    context, _ = read_only(remote)
    policies, _ = remote.policies.load()
    plans, now = Plans(), now_ms()

    def act(name: str) -> dict[str, Any] | None:
        report = retain(context, name, policies, now_ms=now, pause=no_pause, dry_run=True)
        shown = stream or report.ranges or report.effective.retains
        return _document(report) if shown else None

    if stream:
        plans.rows = list(filter(None, [act(workable(remote.catalog, stream))]))
        return plans
    # Not the machine's scan: that leaves out what is held, and people want to see it.
    for item in items(context.catalog, plans):
        if item.state is not StreamState.LIVE:
            continue
        said = effective(policies, item.stream, item.name)
        if said.retains or may_be_due(
            RetentionLimits(said.max_age_ms, said.max_bytes),
            first_timestamp=item.first_timestamp,
            total_size=item.total_size,
            fragments=item.fragments,
            now_ms=now,
        ):
            plan_each(iter([item.stream]), act, plans)
    return plans


def _document(report: RetentionReport) -> dict[str, Any]:
    rule = report.effective
    return {
        "stream": report.stream,
        "rule": rule.retention_rule or None,
        "max_age_seconds": None if rule.max_age_ms is None else rule.max_age_ms // 1000,
        "max_bytes": rule.max_bytes,
        "held_by": list(rule.hold_rules),
        "may_be_kept_by": sorted({*rule.unsure_holds, *rule.unsure_rules}),
        "ranges": [
            {
                "first": each.first_offset,
                "next": each.next_offset,
                "reason": str(each.reason),
                "rule": rule.retention_rule,
                "fragments": each.fragments,
                "groups": each.groups,
                "bytes": each.size,
                "first_time": when(each.min_timestamp),
                "last_time": when(each.max_timestamp),
            }
            for each in report.ranges
        ],
        "stays": {
            "first": report.first_offset,
            "next": report.next_offset,
            "fragments": report.fragments,
            "bytes": report.total_size,
        },
    }


def _print(plans: Plans, *, as_json: bool) -> None:
    if as_json:
        print_json(plans.rows)
    else:
        lines: list[dict[str, Any]] = []
        for row in plans.rows:
            lines += ({"stream": row["stream"], **each} for each in row["ranges"])
            stays = {"stream": row["stream"], "reason": "stays", "rule": row["rule"]}
            if row["held_by"]:
                stays |= {"reason": "held", "rule": ", ".join(row["held_by"])}
            elif row["may_be_kept_by"]:
                stays |= {"reason": "no name", "rule": ", ".join(row["may_be_kept_by"])}
            lines.append({**stays, **row["stays"]})
        print_table(lines, _COLUMNS)
        ranges = [each for row in plans.rows for each in row["ranges"]]
        streams = sum(bool(row["ranges"]) for row in plans.rows)
        held = sum(bool(row["held_by"]) for row in plans.rows)
        note(
            f"{many(sum(each['fragments'] for each in ranges), 'fragment')} of "
            f"{many(streams, 'stream')} would go, {sum(each['bytes'] for each in ranges)} bytes; "
            f"held: {many(held, 'stream')}"
        )
    plans.finish()
