"""What may enter a manifest: leaves that tile it, and holes over what nobody has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coldstream.errors import InvalidInputError
from coldstream.manifest.invariants import Invariant
from coldstream.names import DataKey, parse_data_key
from coldstream_devkit.simulation.cluster import ChunkId, SimChunk
from coldstream_devkit.simulation.reading import HOLE, Leaf, Manifest, accepts

if TYPE_CHECKING:
    from coldstream_devkit.simulation.oracle import Oracle


def enters_rightly(oracle: Oracle, after: Manifest, old: Manifest | None, what: str) -> None:
    """Leaves tile the offsets; what is new was let in by the ledger and holds what it says."""
    known = {each.uid for each in old.leaves} if old is not None else set()
    epoch, last = 0, None
    at = after.leaves[0].first if after.leaves else after.first
    for leaf in after.leaves:
        if leaf.first != at:
            raise oracle.broken(Invariant.COVERAGE, f"a leaf at {leaf.first}, not {at}", at)
        at = leaf.next
        new = leaf.uid not in known
        if leaf.kind == HOLE:
            last = None
            if new:
                no_data_below(oracle, leaf, after.ledger, what)
            continue
        key, held = oracle.key_of(leaf), oracle.identities(leaf)
        if new:
            if not accepts(after.ledger, leaf.epoch, leaf.first, leaf.next) and not (
                leaf.next <= after.first
            ):
                raise oracle.broken(Invariant.FENCING, "not acceptable", leaf.first, key)
            last = _holds_what_it_says(oracle, leaf, key, held, last)
        if held[0][1] < epoch:
            raise oracle.broken(
                Invariant.EPOCH_ORDER, f"epoch {held[0][1]} after {epoch}", held[0][0], key
            )
        epoch, last = held[-1][1], held[-1]
    if at != after.next:
        raise oracle.broken(Invariant.COVERAGE, f"the last leaf ends at {at}", at)
    if last is not None and after.last_chunk not in (last, None):
        raise oracle.broken(
            Invariant.AGREEMENT, f"the last chunk is {last}, the root has {after.last_chunk}"
        )


def _holds_what_it_says(
    oracle: Oracle, leaf: Leaf, key: str, held: tuple[ChunkId, ...], last: ChunkId | None
) -> ChunkId | None:
    """Committed chunks that tile the leaf's offsets, and follow what they followed."""
    at = leaf.first
    times: list[int] = []
    for identity in held:
        chunk = oracle.cluster.written[identity]
        times.append(chunk.timestamp)
        if identity not in oracle.cluster.committed:
            raise oracle.broken(
                Invariant.DURABILITY,
                f"chunk {identity} in the manifest was never committed",
                identity[0],
                key,
            )
        if chunk.chunk_id != at:
            raise oracle.broken(Invariant.COVERAGE, f"chunk at {at}", at, key)
        at = chunk.next_offset
        if last is not None and _joins_wrongly(oracle, chunk, last):
            raise oracle.broken(
                Invariant.CONTIGUOUS_ADVANCE,
                f"chunk {identity} follows {last}, which its writer never had: its log"
                f" had {chunk.previous} there",
                identity[0],
                key,
            )
        last = identity
    # A rebuild takes the size from LIST, also that of an object that was cut meanwhile.
    cut = key in oracle.contents.harmed and len(oracle.objects.objects.get(key, b""))
    size = leaf.size if leaf.size == cut else oracle.contents.sizes[key]
    records = leaf.next - leaf.first
    if at != leaf.next or (size, records, min(times), max(times)) != (
        leaf.size, leaf.records, leaf.low_ms, leaf.high_ms,
    ):  # fmt: skip
        raise oracle.broken(Invariant.COVERAGE, f"not what its entry says, to {at}", at, key)
    return last


def _joins_wrongly(oracle: Oracle, chunk: SimChunk, last: ChunkId) -> bool:
    """Whether some member shows that another chunk than `last` came before this one.

    If all that can be asked begin at or above it, nothing can tell (`docs/architecture`).
    """
    if chunk.previous is None or chunk.previous == last:
        return False
    oracle.cluster.unseen_joins.add((last, chunk.identity))
    return any(
        replica.reachable_since <= oracle.asked
        and (before := replica.chunk_at(chunk.previous[0])) is not None
        and before.identity == chunk.previous
        for replica in oracle.cluster.reachable
    )


def hole_is_true(oracle: Oracle, key: str) -> None:
    """No member that could be asked, nor any object that was seen, has any of a new hole."""
    hole = parse_data_key(key, oracle.prefix)
    current = oracle.current
    if current is None or hole.first_offset < current.manifest.next:
        return  # a part of one that is in the manifest: a claim or a repair cuts it back
    span = Leaf(hole.first_offset, hole.next_offset, 0, 0, HOLE, 0, 0, hole.epoch, hole.uid)
    ledger = current.manifest.ledger
    if accepts(ledger, hole.epoch, hole.first_offset, hole.next_offset):
        # One that was meant under a claim that is over, by its root, is let in by nobody.
        no_data_below(oracle, span, ledger, "created")
    for replica in oracle.cluster.reachable:
        if replica.reachable_since > oracle.asked:
            continue
        for chunk in replica.chunks():
            if (
                chunk.chunk_id < hole.next_offset
                and hole.first_offset < chunk.next_offset <= replica.committed
            ):
                raise oracle.broken(
                    Invariant.CONTIGUOUS_ADVANCE,
                    f"a hole over chunk {chunk.identity}, which {replica.name} has",
                    hole.first_offset,
                )


def no_data_below(
    oracle: Oracle, hole: Leaf, ledger: tuple[tuple[int, int], ...], what: str
) -> None:
    """No acceptable fragment that was listed by whoever makes a hole has what it gives up."""
    for key, parsed in _seen_fragments(oracle):
        if parsed.next_offset <= hole.first or parsed.first_offset >= hole.next:
            continue
        if not accepts(ledger, parsed.epoch, parsed.first_offset, parsed.next_offset):
            continue
        sound = oracle.contents.sound[key]
        begins = {chunk_id for chunk_id, _ in sound}
        whole = len(sound) == len(oracle.contents.chunks[key])
        had = hole.first in begins or (whole and parsed.first_offset > hole.first)
        # A rebuild that accepts less names whole objects side by side; a repair does the rest.
        fits = whole and hole.first <= parsed.first_offset and parsed.next_offset <= hole.next
        if had and (fits or what != "adopt"):
            raise oracle.broken(
                Invariant.CONTIGUOUS_ADVANCE,
                f"a hole [{hole.first}, {hole.next}) over data that the bucket has",
                hole.first,
                key,
            )


def _seen_fragments(oracle: Oracle) -> Iterator[tuple[str, DataKey]]:
    for key in oracle.seen():
        if key in oracle.objects.objects and key in oracle.contents.chunks:
            try:
                yield key, parse_data_key(key, oracle.prefix)
            except InvalidInputError:
                continue
