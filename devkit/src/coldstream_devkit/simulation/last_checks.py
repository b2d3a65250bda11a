"""What must hold when all trouble is over: nothing is behind, nothing leaks, all can be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.manifest.quarantine import parse_record
from coldstream.manifest.root import parse_root
from coldstream.manifest.tree import nodes
from coldstream.manifest.walk import object_path
from coldstream.names import (
    DataKey,
    RootKey,
    metadata_prefix,
    parse_data_key,
    parse_metadata_key,
    stream_prefix,
)
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import Last, Timestamp
from coldstream.reader.stream import StreamReader
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache
from coldstream.usecases.rebuild import rebuild
from coldstream_devkit.bucket import referenced
from coldstream_devkit.simulation.cluster import ChunkId, Cluster
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.oracle import BrokenError, Oracle
from coldstream_devkit.simulation.readers import read
from coldstream_devkit.simulation.reading import Manifest, accepts


def arrived(oracle: Oracle, cluster: Cluster, errors: Iterable[str]) -> None:
    """Every committed chunk that the writer, or an object that joins, still has is in the manifest.

    Unless retention took it.

    Args:
        oracle: knows what objects hold.
        cluster: whose writer is asked.
        errors: what agents say.
    """
    current = oracle.current
    writer = cluster.writer
    assert writer is not None
    manifest = None if current is None else current.manifest
    next_offset = 0 if manifest is None else manifest.next
    committed = writer.committed
    if next_offset < committed:
        raise _broken(
            Invariant.CONTIGUOUS_ADVANCE,
            f"the manifest stands at {next_offset}, the writer has committed up to {committed};"
            f" agents say {sorted(set(errors))}",
        )
    if manifest is None:
        return
    _nothing_joins(oracle, manifest)
    there = chunks_of(oracle)
    lacks = [
        chunk.identity
        for chunk in writer.chunks()
        if manifest.first < chunk.next_offset <= committed
        and chunk.identity not in there
        and chunk.identity not in oracle.contents.rotten  # given up before its log was asked
    ]
    if lacks:
        raise _broken(
            Invariant.DURABILITY,
            f"the manifest lacks {lacks[:5]}, which the writer has; agents say"
            f" {sorted(set(errors))}",
        )


def _nothing_joins(oracle: Oracle, manifest: Manifest) -> None:
    """No whole fragment that the ledger lets in begins where the manifest ends."""
    for key, chunks in oracle.contents.chunks.items():
        if key not in oracle.objects.objects or key in oracle.contents.harmed:
            continue
        parsed = parse_data_key(key, oracle.prefix)
        if (
            parsed.first_offset == manifest.next
            and accepts(manifest.ledger, parsed.epoch, parsed.first_offset, parsed.next_offset)
            and (manifest.last_chunk is None or chunks[0][1] >= manifest.last_chunk[1])
        ):
            raise _broken(
                Invariant.CONTIGUOUS_ADVANCE, "it could be appended, and never was", key=key
            )


def chunks_of(oracle: Oracle) -> set[ChunkId]:
    """Identities of all chunks in the current manifest."""
    assert oracle.current is not None
    return {
        identity for leaf in oracle.current.manifest.leaves for identity in oracle.identities(leaf)
    }


def reads_back(store: MemoryObjectStore, catalog: MemoryCatalog, oracle: Oracle) -> None:
    """A read of everything gives each offset once, in order, byte for byte; gaps are holes."""
    assert oracle.current is not None
    manifest = oracle.current.manifest
    got = read(
        store, catalog, oracle, start=manifest.first, clock=lambda: 0.0, refresh_seconds=3600
    )
    if got is None and any(not oracle.contents.whole(oracle.key_of(e)) for e in manifest.leaves):
        return  # damage that no source could repair is told
    _finds(store, catalog, oracle)
    if got is None or got.next_offset != manifest.next:
        end = None if got is None else got.next_offset
        raise _broken(
            Invariant.DURABILITY, f"a read of [{manifest.first}, {manifest.next}) ends at {end}"
        )


def _finds(store: MemoryObjectStore, catalog: MemoryCatalog, oracle: Oracle) -> None:
    """A read by time begins at the first chunk at or after it; one of the last at the last."""
    assert oracle.current is not None
    manifest = oracle.current.manifest
    chunks = [
        oracle.cluster.written[identity]
        for leaf in manifest.leaves
        for identity in oracle.identities(leaf)
    ]
    live = [chunk for chunk in chunks if chunk.next_offset > manifest.first]
    reader = StreamReader(
        store, catalog, oracle.prefix, oracle.stream, settings=ReaderSettings(pool=Inline),
        nodes=NodeCache(),
    )  # fmt: skip
    for chunk in live[:: max(1, len(live) // 3)]:
        for time in (chunk.timestamp, chunk.timestamp + 1):
            later = [c.chunk_id for c in live if c.timestamp >= time]
            should = max(later[0], manifest.first) if later else manifest.next
            found = reader.locate(Timestamp(time))
            if found != should:
                raise _broken(
                    Invariant.AGREEMENT, f"a read from {time} ms begins at {found}, not {should}"
                )
    if live and reader.locate(Last()) != max(live[-1].chunk_id, manifest.first):
        raise _broken(Invariant.AGREEMENT, "a read of the last chunk begins elsewhere")


def nothing_leaks(store: MemoryObjectStore, oracle: Oracle) -> None:
    """After collection every object is referred to, or it is known why it is not."""
    current = oracle.current
    assert current is not None
    root = current.manifest
    in_manifest = chunks_of(oracle)
    under = stream_prefix(oracle.prefix, oracle.stream)
    kept = kept_by_records(oracle)
    for key in store.objects:
        if not key.startswith(under) or key in current.keys or key in kept:
            continue
        if key.endswith(".marks") or "/erasure." in key or key in oracle.contents.harmed:
            continue
        try:
            parsed: DataKey | object = parse_data_key(key, oracle.prefix)
        except InvalidInputError:
            try:
                parsed = parse_metadata_key(key, oracle.prefix)
            except InvalidInputError:
                continue  # none of ours, so not ours to delete
        if isinstance(parsed, RootKey) and parsed.version > current.item.version:
            continue  # may be adopted yet
        if isinstance(parsed, DataKey):
            if parsed.next_offset > root.next:
                continue  # may be appended yet
            chunks = oracle.contents.chunks.get(key, ())
            # Below the first offset it is retired, unless a claim began the stream anew above it.
            alive = parsed.next_offset > root.first or bool(root.quarantine)
            if alive and not in_manifest.issuperset(chunks):
                continue  # holds what the manifest lacks
        raise _broken(Invariant.NOTHING_LEAKED, "nobody knows of it", key=key)


def kept_by_records(oracle: Oracle) -> set[str]:
    """Keys that nobody may delete although the manifest does not name them."""
    assert oracle.current is not None
    return _quarantined(oracle) | _may_be_adopted(oracle, oracle.current.item.version)


def _may_be_adopted(oracle: Oracle, version: int) -> set[str]:
    """Everything that complete roots above a version refer to: one of them may be adopted."""
    found: set[str] = set()
    under = metadata_prefix(oracle.prefix, oracle.stream)
    for key in oracle.objects.objects:
        if not key.startswith(under) or not key.endswith(".manifest"):
            continue
        if key in oracle.contents.harmed:
            continue
        try:
            parsed = parse_metadata_key(key, oracle.prefix)
        except InvalidInputError:
            continue  # none of ours
        if isinstance(parsed, RootKey) and parsed.version > version:
            root = parse_root(oracle.objects.objects[key])
            item = CatalogItem(oracle.stream, "", root_key=key)
            try:
                found |= referenced(oracle.prefix, item, root, oracle.fetch)
            except ColdstreamError:
                continue  # nobody adopts it
    return found


def _quarantined(oracle: Oracle) -> set[str]:
    """Keys that the current quarantine record speaks of, trees above the floors and all."""
    if oracle.current is None or not oracle.current.root.quarantine_key:
        return set()
    found: set[str] = set()
    if not oracle.contents.harmed.isdisjoint(oracle.current.keys):
        return set(oracle.objects.objects)  # who knows
    record = parse_record(oracle.objects.objects[oracle.current.root.quarantine_key])
    for timeline in record.timelines:
        found |= {each.key for each in timeline.listed}
        if not timeline.root_key:
            continue
        root = parse_root(oracle.objects.objects[timeline.root_key])
        lost = replace(root, first_offset=max(root.first_offset, timeline.floor))
        item = CatalogItem(oracle.stream, "", root_key=timeline.root_key)
        found |= referenced(oracle.prefix, item, lost, oracle.fetch)
        # The groups of such a root are kept as a whole: they are small, and its tree stays one.
        found |= {
            object_path(oracle.prefix, oracle.stream, entry)
            for entry in nodes(root.entries, oracle.fetch, first_offset=root.first_offset)
        }
    return found


def rebuilds(context: Context, oracle: Oracle, *, branching: int) -> None:
    """A rebuild from the bucket alone gives the same tree, down to the very objects."""
    current = oracle.current
    assert current is not None
    report = rebuild(context, oracle.stream, branching=branching)
    ours, theirs = current.root, report.rebuilt.root
    for what, one, other in (
        ("first offset", ours.first_offset, theirs.first_offset),
        ("next offset", ours.next_offset, theirs.next_offset),
        ("fragments and holes", ours.fragments, theirs.fragments),
        ("bytes", ours.total_size, theirs.total_size),
        ("ledger", ours.ledger, theirs.ledger),
        ("last chunk", ours.last_chunk, theirs.last_chunk),
    ):
        if one != other:
            raise _broken(
                Invariant.AGREEMENT, f"{what}: the manifest has {one}, a rebuild gives {other}"
            )


def _broken(invariant: Invariant, message: str, *, key: str = "") -> BrokenError:
    return BrokenError([Violation(invariant, message, key=key)])
