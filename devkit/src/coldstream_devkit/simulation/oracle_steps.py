"""What may become of a manifest in one step: it advances, and keeps what could be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.manifest.invariants import Invariant
from coldstream.names import parse_data_key
from coldstream_devkit.simulation.cluster import ChunkId
from coldstream_devkit.simulation.reading import HOLE, Leaf, Manifest, accepts

if TYPE_CHECKING:
    from coldstream_devkit.simulation.oracle import Oracle


def advances(oracle: Oracle, old: Manifest, after: Manifest, what: str, *, anew: bool) -> None:
    """Next grows, and falls only where a higher epoch claims; first only rises."""
    cut = _cut(old, after)
    # An older root may be adopted; what lies behind it is resolved by the commits that follow.
    if what != "adopt" and after.next < min(old.next, cut):
        raise oracle.broken(
            Invariant.CONTIGUOUS_ADVANCE,
            f"next fell from {old.next} to {after.next} within epoch {after.epoch}",
            after.next,
        )
    end = min(old.next, cut)
    for leaf in after.leaves if what != "adopt" else ():
        if leaf.first < end < leaf.next:
            raise oracle.broken(
                Invariant.CONTIGUOUS_ADVANCE, f"reaches over the old end {end}", leaf.first
            )
    if what == "adopt" or anew:
        return
    if after.epoch < old.epoch:
        raise oracle.broken(Invariant.FENCING, f"epoch {after.epoch} after {old.epoch}")
    if after.first < old.first:
        raise oracle.broken(
            Invariant.PREFIX_RETENTION, f"first fell from {old.first} to {after.first}"
        )
    data = [any(e.kind != HOLE for e in each.leaves) for each in (old, after)]
    if data == [True, False] and after.epoch == old.epoch and not oracle.contents.rotten:
        raise oracle.broken(Invariant.PREFIX_RETENTION, "the last fragment is gone")


def survives(oracle: Oracle, old: Manifest, after: Manifest, what: str, *, anew: bool) -> None:
    """What could be read can be read, in the manifest, unless a claim or retention took it.

    It may be cut otherwise. A chunk that the world has destroyed may become a hole; one that is
    whole somewhere is never given up for one that is not.
    """
    if anew:
        return
    end = min(old.next, after.next, _cut(old, after), *_ceilings(old, after))
    first = max(old.first, after.first)
    kept = {leaf.uid for leaf in after.leaves}
    there: dict[ChunkId, bool] = {}
    for leaf in after.leaves:
        sound = oracle.contents.sound.get(oracle.key_of(leaf), frozenset())
        for identity in oracle.identities(leaf):
            there[identity] = identity in sound
    for leaf in old.leaves:
        if leaf.uid in kept:
            continue
        sound = oracle.contents.sound.get(oracle.key_of(leaf), frozenset())
        for identity in oracle.identities(leaf):
            chunk = oracle.cluster.written[identity]
            if not first < chunk.next_offset <= end or there.get(identity):
                continue
            rebuilt = after if what == "adopt" else None
            if identity in sound or (
                identity not in there and _acceptable(oracle, identity, old, rebuilt)
            ):
                how = "only damaged" if identity in there else "not"
                raise oracle.broken(
                    Invariant.PREFIX_RETENTION,
                    f"chunk {identity} is {how} in what was put in its manifest's place",
                    identity[0],
                    oracle.key_of(leaf),
                )


def _acceptable(oracle: Oracle, identity: ChunkId, old: Manifest, rebuilt: Manifest | None) -> bool:
    """Whether a whole copy of a chunk was listed, in an object that the ledger lets in.

    A repair takes a part of it. A rebuild names whole objects: only what lies in the old
    manifest, and overlaps nothing that is named and no hole that was there before.
    """
    uids = {leaf.uid for leaf in old.leaves}
    beside = [e for e in rebuilt.leaves if e.kind != HOLE or e.uid in uids] if rebuilt else []
    seen = oracle.seen()
    for key in oracle.contents.holders.get(identity, ()):
        parsed = parse_data_key(key, oracle.prefix)
        first, next_offset = parsed.first_offset, parsed.next_offset
        if (
            key in seen
            and accepts(old.ledger, parsed.epoch, first, next_offset)
            and (rebuilt is None or old.first <= first < next_offset <= old.next)
            and not any(leaf.first < next_offset and first < leaf.next for leaf in beside)
        ):
            return True
    return False


def _cut(old: Manifest, after: Manifest) -> int:
    """The lowest floor that was claimed since: what lies above it may be cut off."""
    claims = set(after.ledger) - set(old.ledger)
    return min((floor for _, floor in claims), default=2**64 - 1)


def _ceilings(old: Manifest, after: Manifest) -> list[int]:
    return [floor for epoch, floor in after.ledger if epoch > old.epoch]


def begun_anew(old: Manifest, after: Manifest) -> bool:
    """Whether a claim has begun the stream anew: nothing of the old manifest is in it."""
    return (
        after.epoch > old.epoch
        and dict(after.ledger).get(after.epoch) == after.first
        and (
            after.quarantine != old.quarantine
            or all(leaf.kind == HOLE for leaf in old.leaves)  # there was nothing to keep
        )
    )


def cut_for_a_reason(oracle: Oracle, old: Manifest, after: Manifest) -> None:
    """What a claim cuts off is in no log that follows its writer; a later one may have it."""
    floor = dict(after.ledger).get(after.epoch)
    if after.epoch <= old.epoch or floor is None or floor >= old.next:
        return
    for leaf in old.leaves:
        if leaf.kind == HOLE or leaf.next <= floor:
            continue
        for identity in oracle.identities(leaf):
            chunk = oracle.cluster.written[identity]
            if chunk.next_offset <= max(floor, after.first):
                continue
            for replica in oracle.cluster.replicas:
                if (
                    replica.up
                    and replica.joined
                    and replica.epoch == after.epoch
                    and chunk.next_offset <= replica.committed
                    and replica.chunk_at(chunk.chunk_id) is chunk
                ):
                    raise oracle.broken(
                        Invariant.CONTIGUOUS_ADVANCE,
                        f"a claim of epoch {after.epoch} cuts off chunk {identity}, which"
                        f" {replica.name} has",
                        identity[0],
                    )


def kept_for_a_reason(oracle: Oracle, after: Manifest) -> None:
    """What a claim keeps at its end is in the log of every member that follows its writer."""
    last = after.last_chunk
    if last is None:
        return
    for replica in oracle.cluster.reachable:
        if not replica.joined or replica.epoch != after.epoch:
            continue
        if replica.begin <= last[0] < replica.committed:
            there = replica.chunk_at(last[0])
            if there is None or there.identity != last:
                raise oracle.broken(
                    Invariant.CONTIGUOUS_ADVANCE,
                    f"a claim of epoch {after.epoch} keeps chunk {last}, which {replica.name}"
                    " does not have",
                    last[0],
                )


def retired(
    oracle: Oracle, old: Manifest, after: Manifest, most: int | None, oldest_ms: int | None
) -> None:
    """Retention took what breaks its rule, all of it, and nothing else.

    Args:
        old: before it.
        after: what it made.
        most: bytes that may stay, None if any number may.
        oldest_ms: a fragment whose chunks are all older goes, None if none does.
    """

    def goes(leaf: Leaf, left: int) -> bool:
        return (most is not None and left > most) or (
            oldest_ms is not None and leaf.high_ms < oldest_ms
        )

    left = old.size
    fragments = [leaf.first for leaf in old.leaves if leaf.kind != HOLE]
    stays = fragments[-1] if fragments else old.first
    for leaf in old.leaves:
        if leaf.next > after.first:
            if leaf.first == after.first and goes(leaf, left) and leaf.next <= stays:
                raise oracle.broken(
                    Invariant.PREFIX_RETENTION,
                    "retention left what breaks its rule",
                    leaf.first,
                )
            return
        if not goes(leaf, left) or leaf.next > stays:
            raise oracle.broken(
                Invariant.PREFIX_RETENTION, "retention took what no rule retires", leaf.first
            )
        left -= leaf.size
