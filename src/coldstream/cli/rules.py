"""`coldstream retention rules|hold|release`: the operator's rules, shown and changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.connect import Remote
from coldstream.cli.deleted import DeletedError, deletion
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.options import DryRunOption, JsonOption, Where, with_options
from coldstream.cli.output import many, note, print_json, print_table, yes_no
from coldstream.cli.over_streams import Plans, items
from coldstream.cli.resolve import StreamArgument
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.manifest.catalog import StreamState
from coldstream.remote.resolve import resolve
from coldstream.wording import listed

if TYPE_CHECKING:
    from coldstream.plans.policy import Effective, PolicySet

_RULE_COLUMNS = (
    "name",
    "priority",
    "cluster",
    "vhost",
    "queue",
    "directory",
    "max-age",
    "max-length-bytes",
    "consolidate",
    "hold",
)
_CHANGE_COLUMNS = ("stream", "vhost", "queue", "before", "after")
_MAX_BYTES = 2**20


class EndedHoldError(InvalidInputError):
    """A document of rules without a legal hold that is in force."""

    exit_code = ExitCode.FAILED
    why = "legal hold"
    remedy = "add the rules that `coldstream retention rules --json` shows, or --release-holds"


@with_options
def rules(
    new: Annotated[
        Path | None,
        typer.Option(
            "--set",
            metavar="FILE",
            help="Put the rules of this JSON document in the place of all that are there; - reads "
            "standard input.",
            allow_dash=True,
        ),
    ] = None,
    release_holds: Annotated[
        bool,
        typer.Option("--release-holds", help="Allow a document that lacks a hold of today's."),
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Show the rules, or set them all at once.

    --json prints the document that --set takes. --set prints what changes for which streams, and
    changes nothing if another writer has changed the rules meanwhile. Of the rules that match a
    stream the one of the highest priority says how long it is kept; any one of them can hold it. A
    document that would end a legal hold is refused unless --release-holds says that this is meant.

    Examples:

        coldstream retention rules --json > rules.json
        coldstream retention rules --set rules.json --dry-run
    """
    from coldstream.plans.policy_document import parse_policies

    if (dry_run or release_holds) and new is None:
        raise InvalidInputError("--dry-run and --release-holds go with --set")
    wanted = None if new is None else parse_policies(_text(new))
    remote = where.connect()
    if wanted is None:
        _show(*remote.policies.load(), as_json=as_json)
    else:
        _set(remote, wanted, release_holds=release_holds, dry_run=dry_run, as_json=as_json)


@with_options
def hold(
    stream: StreamArgument,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Put one stream under legal hold: neither retention nor a deletion takes anything of it.

    It adds a rule named hold:DIRECTORY. Holding twice is fine. A deletion whose undelete time still
    runs is held, too.

    Example:

        coldstream retention hold //orders
    """
    from coldstream.usecases import hold as usecase

    remote = where.connect()
    name = resolve(remote.catalog, stream)
    item = remote.catalog.get(name)
    if item is not None and item.state is StreamState.DELETED:
        raise DeletedError(f"the stream {deletion(item)}", stream=name)
    changed = not dry_run and usecase.hold(remote.policies, name)
    if not changed and not dry_run:
        note(f"{name} was held by {usecase.hold_name(name)} already")
    # Read after the hold is in force: now either the state is `deleted`, or it cannot become so.
    item = None if dry_run else remote.catalog.get(name)
    if item is not None and item.state is StreamState.DELETED:
        raise DeletedError(f"the hold came too late: the stream {deletion(item)}", stream=name)
    _tell_holds(remote, name, dry_run=dry_run, changed=changed, as_json=as_json)


@with_options
def release(
    stream: StreamArgument,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """End the legal hold that `hold` made; says so if other rules still hold the stream.

    Example:

        coldstream retention release //orders
    """
    from coldstream.usecases import hold as usecase

    remote = where.connect()
    found, _ = remote.policies.load()
    if usecase.hold_name(stream) in {rule.name for rule in found.rules}:
        name = stream  # whatever has become of the stream since
    else:
        name = resolve(remote.catalog, stream)
    changed = not dry_run and usecase.release(remote.policies, name)
    if not changed and not dry_run:
        note(f"there is no rule {usecase.hold_name(name)}")
    _tell_holds(remote, name, dry_run=dry_run, changed=changed, as_json=as_json)


def _tell_holds(
    remote: Remote, stream: str, *, dry_run: bool, changed: bool, as_json: bool
) -> None:
    """Which rules hold the stream now."""
    from coldstream.manifest.catalog import QueueName
    from coldstream.plans.policy import effective

    found, _ = remote.policies.load()
    item = remote.catalog.get(stream)
    said = effective(found, stream, QueueName() if item is None else item.name)
    row = {"stream": stream, "held_by": list(said.hold_rules), "changed": changed}
    if as_json:
        print_json(row)
    else:
        print_table([{**row, "held_by": ", ".join(said.hold_rules) or None}], ("stream", "held_by"))
    if dry_run:
        note("nothing was changed; this is how it is held now")


def _text(path: Path) -> str:
    """The document; bounded, so that a wrong file is refused and not loaded."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        return data.decode()
    except OSError as exc:
        raise InvalidInputError(f"cannot be read: {exc.strerror}", key=str(path)) from exc
    except UnicodeDecodeError as exc:
        raise InvalidInputError("is no UTF-8 text", key=str(path)) from exc


def _show(found: PolicySet, revision: int, *, as_json: bool) -> None:
    import json

    from coldstream.plans.policy_document import policy_document

    document = json.loads(policy_document(found))
    if as_json:
        print_json(document)
    else:
        rows = [
            {
                "priority": 0,
                **rule,
                "consolidate": yes_no(rule.get("consolidate")),
                "hold": yes_no(rule.get("hold")),
            }
            for rule in document["rules"]
        ]
        print_table(sorted(rows, key=lambda row: (-row["priority"], row["name"])), _RULE_COLUMNS)
    note(f"revision {revision}" if revision else "nobody has set any rules: everything is kept")


def _set(
    remote: Remote, wanted: PolicySet, *, release_holds: bool, dry_run: bool, as_json: bool
) -> None:
    found, revision = remote.policies.load()
    kept = {tuple(rule.patterns()) for rule in wanted.rules if rule.hold}
    ended = [r.name for r in found.rules if r.hold and tuple(r.patterns()) not in kept]
    if ended and not (release_holds or dry_run):
        raise EndedHoldError(f"the document would end the legal holds {listed(sorted(ended))}")
    plans = Plans()
    changes = _changes(remote, found, wanted, plans)
    before, after = {r.name: r for r in found.rules}, {r.name: r for r in wanted.rules}
    names = {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(n for n in before.keys() & after.keys() if before[n] != after[n]),
    }
    same = not any(names.values())
    if not dry_run and not same:
        if not remote.policies.save(wanted, revision):
            raise ConflictError(
                f"the rules are not those of revision {revision} any more; nothing was changed"
            )
        revision += 1
    if as_json:
        document = {"revision": revision, "saved": not (dry_run or same), **names}
        print_json({**document, "streams": changes})
    else:
        rows = [{**row, "before": _words(row["before"]), "after": _words(row["after"])}
                for row in changes]  # fmt: skip
        print_table(rows, _CHANGE_COLUMNS)
        for word, each in names.items():
            if each:
                note(f"{word}: {listed(sorted(each))}")
    if ended:
        note(f"legal holds that end: {listed(sorted(ended))}")
    if same:
        note(f"these are the rules of revision {revision}; nothing to change")
    elif dry_run:
        note(f"revision {revision} stays; this would change {many(len(changes), 'stream')}")
    else:
        note(f"revision {revision} is in force; it changes {many(len(changes), 'stream')}")
    plans.finish()


def _changes(
    remote: Remote, found: PolicySet, wanted: PolicySet, plans: Plans
) -> list[dict[str, Any]]:
    """What is different afterwards, stream by stream; those that are gone do not matter."""
    from coldstream.plans.policy import effective

    rows = []
    for item in items(remote.catalog, plans):
        if item.state is StreamState.DELETED:
            continue
        before = effective(found, item.stream, item.name)
        after = effective(wanted, item.stream, item.name)
        if before != after:
            rows.append(
                {
                    "stream": item.stream,
                    "vhost": item.name.vhost,
                    "queue": item.name.queue,
                    "before": _effective(before),
                    "after": _effective(after),
                }
            )
    return sorted(rows, key=lambda row: (row["vhost"], row["queue"], row["stream"]))


def _effective(said: Effective) -> dict[str, Any]:
    from coldstream.plans.policy_document import age

    return {
        "rule": said.retention_rule or None,
        "max-age": None if said.max_age_ms is None else age(said.max_age_ms),
        "max-length-bytes": said.max_bytes,
        "consolidate": said.consolidate,
        "held_by": list(said.hold_rules),
    }


def _words(said: dict[str, Any]) -> str:
    limits = [f"{word} {said[word]}" for word in ("max-age", "max-length-bytes") if said[word]]
    words = [f"{said['rule']}: {' '.join(limits) or 'no limit'}" if said["rule"] else "no rule"]
    if not said["consolidate"]:
        words.append("not consolidated")
    if said["held_by"]:
        words.append(f"held by {' '.join(said['held_by'])}")
    return "; ".join(words)
