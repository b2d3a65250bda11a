"""Objects beside those of the agents that run: with one lie, or good and cut otherwise.

A stray is what another principal, or a broken agent, PUTs: it lies in one thing that a committer
can see, its key, its trailer, its size, its epoch, and no commit may take it. An earlier life of
an agent has cut the same log at other places: what it PUTs is as good as anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct

from coldstream.crc import crc32
from coldstream.fragment import HEADER, INDEX_HEADER, Placement, build_trailer
from coldstream.names import DataKey
from coldstream_devkit.simulation.cluster import SimChunk
from coldstream_devkit.simulation.reading import Manifest
from coldstream_devkit.simulation.scene import PREFIX, Scene, Stream

_RECORD = Struct(">QqI")


@dataclass(frozen=True, slots=True)
class _Stray:
    """A fragment to be, and what its key says."""

    key: DataKey
    chunks: tuple[SimChunk, ...]
    floor: int
    trailer_epoch: int
    bytes_cut: int = 0


def stray(scene: Scene) -> bool:
    """Somebody PUTs a fragment where the manifest ends, or a hole, with one lie in it."""
    stream = scene.pick()
    current = stream.oracle.current
    if current is None or not current.manifest.ledger:
        return False
    manifest = current.manifest
    if scene.choices.below(6) == 5:
        return _hole_with_a_body(scene, stream, manifest)
    at = _chain(scene, stream, manifest)
    if not at:
        return False
    epoch, floor = manifest.ledger[-1]
    key = DataKey(stream.name, at[0].chunk_id, at[-1].next_offset, epoch, scene.new_uid())
    # Where the item is lost nothing tells a forged epoch from one whose claim is lost with it.
    lies = [each for each in _LIES if each is not _unknown_epoch or not scene.loses_items]
    lie = scene.choices.one_of(lies)
    made = lie(_Stray(key, at, floor, epoch), manifest)
    if made is None:
        return False
    return _put(scene, stream, made.key.path(PREFIX), _body(made), lie.__name__.strip("_"))


def earlier_life(scene: Scene) -> bool:
    """An upload of an earlier life of the writer's agent: of its log, under any claim it had."""
    stream = scene.pick()
    current, writer = stream.oracle.current, stream.cluster.writer
    if current is None or writer is None:
        return False
    log = [c for c in writer.chunks() if c.next_offset <= writer.committed]
    begins = {}
    for epoch, floor in current.manifest.ledger:
        # Where the log has a chunk of this epoch, it is that epoch's log up to there.
        last = max((n for n, c in enumerate(log) if c.epoch == epoch), default=-1)
        begins[epoch, floor] = [n for n in range(last + 1) if log[n].chunk_id >= floor]
    claims = [claim for claim, numbers in begins.items() if numbers]
    if not claims:
        return False
    epoch, floor = scene.choices.one_of(claims)
    numbers = begins[epoch, floor]
    first = scene.choices.one_of(numbers)
    chunks = tuple(log[first : min(first + 1 + scene.choices.below(5), numbers[-1] + 1)])
    key = DataKey(stream.name, chunks[0].chunk_id, chunks[-1].next_offset, epoch, scene.new_uid())
    path, body = key.path(PREFIX), _body(_Stray(key, chunks, floor, epoch))
    scene.spawn("earlier life", lambda: scene.store.put(path, body, write_id="earlier"))
    return True


def _chain(scene: Scene, stream: Stream, manifest: Manifest) -> tuple[SimChunk, ...]:
    """Some chunks that a broker has written from the manifest's end on; else from its last leaf."""
    starts = [manifest.next]
    if manifest.leaves:
        starts.append(manifest.leaves[-1].first)
    written = list(stream.cluster.written.values())
    for start in starts:
        found: list[SimChunk] = []
        at = start
        while len(found) < 3:
            least = found[-1].epoch if found else 0
            here = [c for c in written if c.chunk_id == at and c.epoch >= least]
            if not here:
                break
            found.append(scene.choices.one_of(here))
            at = found[-1].next_offset
        if found:
            return tuple(found)
    return ()


def _longer_key(made: _Stray, manifest: Manifest) -> _Stray:
    """The key says more than the trailer."""
    del manifest
    return replace(made, key=replace(made.key, next_offset=made.key.next_offset + 3))


def _other_floor(made: _Stray, manifest: Manifest) -> _Stray | None:
    """The trailer says another floor than the ledger."""
    del manifest
    return replace(made, floor=made.floor - 1) if made.floor else None


def _old_epoch(made: _Stray, manifest: Manifest) -> _Stray | None:
    """An epoch whose right has ended."""
    if len(manifest.ledger) < 2:
        return None
    epoch, floor = manifest.ledger[-2]
    if any(chunk.epoch > epoch for chunk in made.chunks):
        return None
    return replace(made, key=replace(made.key, epoch=epoch), trailer_epoch=epoch, floor=floor)


def _unknown_epoch(made: _Stray, manifest: Manifest) -> _Stray:
    """An epoch that never claimed."""
    del manifest
    epoch = made.key.epoch + 1000
    return replace(made, key=replace(made.key, epoch=epoch), trailer_epoch=epoch)


def _other_epoch(made: _Stray, manifest: Manifest) -> _Stray | None:
    """The key says an epoch with rights, the trailer another one."""
    del manifest
    if any(chunk.epoch > made.key.epoch - 1 for chunk in made.chunks) or made.key.epoch < 2:
        return None
    return replace(made, trailer_epoch=made.key.epoch - 1)


def _cut_short(made: _Stray, manifest: Manifest) -> _Stray:
    """The object ends before its trailer does."""
    del manifest
    return replace(made, bytes_cut=5)


def _below_floor(made: _Stray, manifest: Manifest) -> _Stray | None:
    """It begins below the floor of its epoch, where the end of the manifest is."""
    epoch, floor = manifest.ledger[-1]
    return replace(made, floor=floor) if made.key.first_offset < floor and epoch else None


_LIES: tuple[Callable[[_Stray, Manifest], _Stray | None], ...] = (
    _longer_key,
    _other_floor,
    _old_epoch,
    _unknown_epoch,
    _other_epoch,
    _cut_short,
    _below_floor,
)


def _body(made: _Stray) -> bytes:
    data = b"".join(chunk.data for chunk in made.chunks)
    index, at = b"", 0
    for chunk in made.chunks:
        index += _RECORD.pack(chunk.chunk_id, chunk.timestamp, at)
        at += len(chunk.data)
    placement = Placement(made.trailer_epoch, made.floor, 0, 0, 8)
    trailer = build_trailer(
        placement=placement,
        index=index,
        next_offset=made.chunks[-1].next_offset,
        first_chunk_epoch=made.chunks[0].epoch,
        last_chunk_epoch=made.chunks[-1].epoch,
        data_size=len(data),
        data_crc=crc32(data),
    )
    whole = HEADER + data + INDEX_HEADER + index + trailer.encode()
    return whole[: len(whole) - made.bytes_cut]


def _hole_with_a_body(scene: Scene, stream: Stream, manifest: Manifest) -> bool:
    epoch, _ = manifest.ledger[-1]
    begin = manifest.next
    key = DataKey(stream.name, begin, begin + 5, epoch, scene.new_uid(), "hole")
    return _put(scene, stream, key.path(PREFIX), b"x", "hole with a body")


def _put(scene: Scene, stream: Stream, key: str, body: bytes, what: str) -> bool:
    stream.oracle.contents.add_stray(key, len(body))
    scene.objects.put(key, body, write_id="stray")
    scene.queue.object_created(key)
    scene.buckets["stray upload"] += 1
    scene.scheduler.say(f"stray upload, {what.replace('_', ' ')}: {key.rpartition('/')[2]}")
    return True
