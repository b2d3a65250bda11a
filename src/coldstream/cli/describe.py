"""`coldstream describe STREAM`: one stream, in sections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import typer

from coldstream.cli.agents_said import (
    MARK_COLUMNS,
    NODE_COLUMNS,
    agents_told,
    mark_rows,
    node_rows,
    super_stream_of,
)
from coldstream.cli.connect import Remote
from coldstream.cli.deleted import readable, telling_deletion
from coldstream.cli.options import JsonOption, Where, with_options
from coldstream.cli.output import (
    MAX_ROWS_ASKED,
    note,
    print_json,
    print_section,
    print_titled,
    size,
    when,
    yes_no,
)
from coldstream.cli.resolve import StreamArgument
from coldstream.clock import now_ms
from coldstream.errors import NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves, leaves_backwards
from coldstream.usecases.told_by_agents import AgentsTold

_COLUMNS = ("first", "next", "kind", "records", "bytes", "epoch", "first_time", "last_time", "uid")
_HOLE_COLUMNS = ("first", "next", "offsets", "epoch", "after", "uid")
_GROUP_COLUMNS = ("first", "next", "kind", "fragments", "bytes", "first_time", "last_time", "uid")


@with_options
def describe(
    stream: StreamArgument,
    fragments: Annotated[
        int,
        typer.Option(
            "--fragments",
            min=0,
            max=MAX_ROWS_ASKED,
            help="How many of the newest fragments to show, and of groups.",
        ),
    ] = 10,
    all_holes: Annotated[
        bool,
        typer.Option("--holes", help="Look for holes below groups, too: reads every group."),
    ] = False,
    as_json: JsonOption = False,
    *,
    where: Where,
) -> None:
    """Describe what the remote tier holds of a stream.

    SUMMARY says which queue it is and who wrote it last, OFFSETS and SIZE what can be read, TREE
    how the manifest is built, LEDGER which epoch owns which offsets, GROUPS the newest groups of
    the root, HOLES the ranges that were lost before they could be uploaded, FRAGMENTS the newest
    objects. NODES is what each broker node's agent said of the stream in its last heartbeats, and
    WATERMARKS how far it had come: what was committed, cut into fragments, uploaded, verified by a
    function, and published to readers.

    Example:

        coldstream describe //orders
    """
    remote = where.connect()
    try:
        name = readable(remote.catalog, stream)
    except NotFoundError:
        told = _told_only(remote, stream)
        if told is None:
            raise
        found = told
    else:
        found = _look(remote, name, fragments, all_holes=all_holes)
    if as_json:
        print_json({**found.sections, **found.lists})
    else:
        _print(found)


@dataclass(frozen=True, slots=True)
class _Described:
    """What there is to tell.

    Attributes:
        sections: names and values, by title; the ledger as a list.
        lists: rows of nodes, the newest groups, the known holes, the newest fragments.
        groups: how many there are in the root.
        fragments: how many there are, holes included.
        unseen: whether nobody has looked for holes below the groups that there are.
    """

    sections: dict[str, Any]
    lists: dict[str, list[dict[str, Any]]]
    groups: int
    fragments: int
    unseen: bool


def _look(remote: Remote, stream: str, newest: int, *, all_holes: bool) -> _Described:
    """Read a stream's root, its `newest` fragments, and with `all_holes` every group."""
    from coldstream.remote.nodes import PROCESS_NODES, fetcher
    from coldstream.remote.roots import Snapshots

    fetch = fetcher(remote.store, PROCESS_NODES, remote.prefix, stream)
    with telling_deletion(remote.catalog, stream):
        snapshot = Snapshots(remote.store, remote.catalog, remote.prefix).load(stream)
        root = snapshot.root
        fragments = list(islice(leaves_backwards(root, fetch), newest))
        below = leaves(root, fetch) if all_holes else root.entries
        holes = [entry for entry in below if entry.kind is EntryKind.HOLE]
    groups = [entry for entry in root.entries if entry.kind.level]
    now = now_ms()
    told = agents_told(remote, now, stream)
    nodes = node_rows(told, stream, snapshot.item.next_offset, now)
    unseen = not all_holes and bool(groups)
    sections = _sections(snapshot.item, root, holes, unseen=unseen)
    sections["summary"] |= _agents_say(told, stream, snapshot.item.name.super_stream)
    return _Described(
        sections=sections,
        lists={
            "nodes": nodes,
            "groups": [_group(entry) for entry in groups[max(0, len(groups) - newest) :]],
            "holes": [_hole(entry) for entry in holes],
            "fragments": [_fragment(entry) for entry in reversed(fragments)],
        },
        groups=len(groups),
        fragments=root.fragments,
        unseen=unseen,
    )


def _told_only(remote: Remote, stream: str) -> _Described | None:
    """What agents tell of a directory that the catalog does not know; None if they tell nothing."""
    told, now = agents_told(remote, now_ms(), stream), now_ms()
    nodes = node_rows(told, stream, 0, now)
    if not nodes:
        return None
    note("the catalog does not know this stream: nothing of it was ever proved and uploaded")
    summary = {"stream": stream, "state": None, **_agents_say(told, stream)}
    lists = {"nodes": nodes, "groups": [], "holes": [], "fragments": []}
    return _Described({"summary": summary, "ledger": []}, lists, 0, 0, unseen=False)


def _agents_say(told: AgentsTold, stream: str, super_stream: str = "") -> dict[str, Any]:
    """What is said of a stream as a whole; `gone` is None where nobody can say.

    Args:
        told: what agents say.
        stream: directory name.
        super_stream: that the catalog has recorded.
    """
    return {
        "super_stream": super_stream_of(told, stream, super_stream),
        "gone": told.is_gone(stream),
    }


def _print(found: _Described) -> None:
    for title, values in found.sections.items():
        if title != "ledger":
            print_section(title.upper(), {k: _shown(k, v) for k, v in values.items()})
    ledger = {f"epoch {c['epoch']}": f"from offset {c['floor']}" for c in found.sections["ledger"]}
    print_section("LEDGER", ledger)
    groups, holes, fragments = found.lists["groups"], found.lists["holes"], found.lists["fragments"]
    if nodes := found.lists["nodes"]:
        shown = [row | {"writer": yes_no(row["writer"])} for row in nodes]
        _table("NODES", shown, len(nodes), NODE_COLUMNS)
        _table("WATERMARKS", mark_rows(nodes), len(nodes), MARK_COLUMNS)
    if found.groups:
        _table("GROUPS", groups, found.groups, _GROUP_COLUMNS)
    if holes:
        _table("HOLES", holes, len(holes), _HOLE_COLUMNS)
    if found.unseen:
        note("holes below groups are not looked for; see --holes")
    _table("FRAGMENTS", fragments, found.fragments, _COLUMNS)


def _table(title: str, rows: list[dict[str, Any]], count: int, columns: tuple[str, ...]) -> None:
    """The newest of `count` rows."""
    hidden = count - len(rows)
    print_titled(f"{title}{f' (the newest {len(rows)})' if hidden else ''}", rows, columns)
    if hidden:
        note(f"{hidden} older {title.lower()} are not shown; see --fragments")


def _sections(item: CatalogItem, root: Root, known: list[Entry], *, unseen: bool) -> dict[str, Any]:
    """Everything but lists.

    Args:
        item: of the stream.
        root: of its manifest.
        known: the holes that were seen.
        unseen: whether nobody has looked for holes below the groups: there may be more.
    """
    holes = None if unseen else len(known)
    lost = sum(each.next_offset - each.first_offset for each in known)
    entries = len(root.entries)
    counts = Counter(entry.kind for entry in root.entries)
    depth = max((entry.kind.level for entry in root.entries), default=0)
    # Without a look below the groups, holes there count as fragments.
    fragments = root.fragments - (counts[EntryKind.HOLE] if holes is None else holes)
    return {
        "summary": {
            "stream": item.stream,
            "cluster": item.name.cluster or None,
            "vhost": item.name.vhost or None,
            "queue": item.name.queue or None,
            "state": str(item.state),
            "undelete_until": when(item.undelete_until) if item.undelete_until else None,
            "epoch": root.epoch,
            "version": root.version,
            "root": item.root_key or None,
            "quarantine": root.quarantine_key or None,
        },
        "offsets": {
            "first": root.first_offset,
            "next": root.next_offset,
            "count": root.next_offset - root.first_offset - lost,
            "lost": None if unseen else lost,
            "first_time": when(root.first_timestamp) if entries else None,
            "last_time": when(root.last_timestamp) if entries else None,
        },
        "size": {
            "bytes": root.total_size,
            "fragments": fragments,
            "holes": holes,
            "mean_fragment_bytes": root.total_size // fragments if fragments else 0,
        },
        "tree": {
            "levels": depth,
            "root_entries": entries,
            "mega_groups": counts[EntryKind.MEGA_GROUP],
            "kilo_groups": counts[EntryKind.KILO_GROUP],
            "groups": counts[EntryKind.GROUP],
            "fragments_in_root": counts[EntryKind.FRAGMENT] + counts[EntryKind.HOLE],
            "dead_fragments": root.head.dead_fragments if root.head else 0,
            "dead_bytes": root.head.dead_size if root.head else 0,
        },
        "ledger": [{"epoch": c.epoch, "floor": c.floor} for c in root.ledger.claims],
    }


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return yes_no(value)
    return size(value) if name.endswith("bytes") else value


def _fragment(entry: Entry) -> dict[str, Any]:
    return {
        "first": entry.first_offset,
        "next": entry.next_offset,
        "kind": entry.kind.name.lower(),
        "records": entry.records,
        "bytes": entry.size,
        "epoch": entry.epoch,
        "first_time": when(entry.min_timestamp),
        "last_time": when(entry.max_timestamp),
        "uid": f"{entry.uid:016x}",
    }


def _hole(entry: Entry) -> dict[str, Any]:
    return {
        "first": entry.first_offset,
        "next": entry.next_offset,
        "offsets": entry.next_offset - entry.first_offset,
        "epoch": entry.epoch,
        "after": when(entry.max_timestamp),
        "uid": f"{entry.uid:016x}",
    }


def _group(entry: Entry) -> dict[str, Any]:
    return {
        "first": entry.first_offset,
        "next": entry.next_offset,
        "kind": entry.kind.name.lower(),
        "fragments": entry.fragments,
        "bytes": entry.size,
        "first_time": when(entry.min_timestamp),
        "last_time": when(entry.max_timestamp),
        "uid": f"{entry.uid:016x}",
    }
