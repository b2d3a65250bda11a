"""`coldstream describe STREAM`: one stream, in sections."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coldstream.cli.connect import (
    DEFAULT_PREFIX_VALUE,
    BucketOption,
    PrefixOption,
    TableOption,
    connect,
)
from coldstream.cli.output import (
    JsonOption,
    note,
    print_json,
    print_section,
    print_table,
    size,
    when,
)
from coldstream.cli.resolve import StreamArgument, resolve
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import Root

_COLUMNS = ("first", "next", "kind", "records", "bytes", "epoch", "first_time", "last_time", "uid")


def describe(
    stream: StreamArgument,
    fragments: Annotated[
        int, typer.Option("--fragments", min=0, help="How many of the newest fragments to show.")
    ] = 10,
    as_json: JsonOption = False,
    bucket: BucketOption = "",
    table: TableOption = "",
    prefix: PrefixOption = DEFAULT_PREFIX_VALUE,
) -> None:
    """Describe what the remote tier holds of a stream.

    SUMMARY says which queue it is and who wrote it last, OFFSETS and SIZE what can be read, LEDGER
    which epoch owns which offsets, FRAGMENTS the newest objects. What the brokers hold locally is
    not known here.

    Example: coldstream describe //orders
    """
    from coldstream.reader.snapshot import Snapshots

    remote = connect(bucket=bucket, table=table, prefix=prefix)
    name = resolve(remote.catalog, stream)
    snapshot = Snapshots(remote.store, remote.catalog).load(name)
    sections = _sections(snapshot.item, snapshot.root)
    rows = _entries(snapshot.root, fragments)
    if as_json:
        print_json({**sections, "fragments": rows})
        return
    for title, values in sections.items():
        if title != "ledger":
            print_section(title.upper(), {k: _shown(title, k, v) for k, v in values.items()})
    ledger = {f"epoch {c['epoch']}": f"from offset {c['floor']}" for c in sections["ledger"]}
    print_section("LEDGER", ledger)
    hidden = len(snapshot.root.entries) - len(rows)
    print_section(f"FRAGMENTS{f' (the newest {len(rows)})' if hidden else ''}", {})
    print_table(rows, _COLUMNS)
    if hidden:
        note(f"{hidden} older ones are not shown; see --fragments")


def _sections(item: CatalogItem, root: Root) -> dict[str, Any]:
    entries = len(root.entries)
    holes = sum(entry.kind is EntryKind.HOLE for entry in root.entries)
    return {
        "summary": {
            "stream": item.stream,
            "cluster": item.name.cluster or None,
            "vhost": item.name.vhost or None,
            "queue": item.name.queue or None,
            "state": str(item.state),
            "epoch": root.epoch,
            "version": root.version,
            "root": item.root_key or None,
            "quarantine": root.quarantine_key or None,
        },
        "offsets": {
            "first": root.first_offset,
            "next": root.next_offset,
            "count": root.next_offset - root.first_offset,
            "first_time": when(root.first_timestamp) if entries else None,
            "last_time": when(root.last_timestamp) if entries else None,
        },
        "size": {
            "bytes": root.total_size,
            "fragments": entries - holes,
            "holes": holes,
            "mean_fragment_bytes": root.total_size // (entries - holes) if entries > holes else 0,
        },
        "ledger": [{"epoch": c.epoch, "floor": c.floor} for c in root.ledger.claims],
    }


def _shown(title: str, name: str, value: Any) -> Any:
    return size(value) if title == "size" and name.endswith("bytes") else value


def _entries(root: Root, count: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(max(0, len(root.entries) - count), len(root.entries)):
        entry = root.entries[number]
        rows.append(
            {
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
        )
    return rows
