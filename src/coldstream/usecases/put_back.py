"""Put what a claim has cut off into the bucket once more, as uploads of a new claim.

An object's epoch and floor are in its key and its trailer. So a whole fragment is copied inside S3,
with another trailer; of one that is needed in part every chunk is read and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.fragment import HEADER, TRAILER_SIZE, Trailer
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import leaves
from coldstream.names import DataKey
from coldstream.plans.overlap import begin_of, blocks, part_of, runs
from coldstream.ports import MIN_PART_BYTES, BytesPart, Composer, CopyPart, Part
from coldstream.remote.context import Context
from coldstream.remote.trailers import read_index, trailer_of

#: Bytes of a fragment that is cut in two which are in memory at once.
_PIECE = 16 * 2**20
#: Fragments that are copied at once, and how many are begun before the first is waited for.
_AT_ONCE = 8
_BATCH = 256


@dataclass(frozen=True, slots=True)
class Source:
    """Where true data is: the leaves of `root` that reach into [first, next), in a lost tree."""

    root: Root
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies lost data inside the bucket, as uploads of a new claim.

    Args:
        context: where.
        composer: of the same bucket.
        stream: directory name.
        epoch: of the new claim.
        floor: of the new claim.
        sources: what is copied, in the order of offsets.
    """

    context: Context
    composer: Composer
    stream: str
    epoch: int
    floor: int
    sources: tuple[Source, ...]

    def leaves(self) -> Iterator[tuple[Source, Entry]]:
        """All that is put back, in the order of offsets."""
        for source in self.sources:
            fetch = self.context.fetch(self.stream)
            for leaf in leaves(source.root, fetch, start=source.first):
                if leaf.first_offset >= source.next:
                    break
                yield source, leaf

    def put_all(self) -> Iterator[list[int] | CorruptDataError | NotFoundError]:
        """PUT all of it, many at once; what came of each, in the order of offsets."""
        wanted = self.leaves()
        with self.context.pool(_AT_ONCE) as pool:
            while batch := list(islice(wanted, _BATCH)):
                yield from pool.map(self.put, batch)

    def put(self, wanted: tuple[Source, Entry]) -> list[int] | CorruptDataError | NotFoundError:
        """PUT one leaf, as far as it lies in its source; sizes of what was PUT, bytes."""
        source, leaf = wanted
        path = leaf.data_key(self.stream).path(self.context.prefix)
        first, end = max(leaf.first_offset, source.first), min(leaf.next_offset, source.next)
        try:
            if leaf.kind is EntryKind.HOLE:
                key = self._key(first, end, "hole")
                path = key.path(self.context.prefix)
                self.context.store.put(path, b"", write_id=f"{key.uid:016x}")
                return [0]
            trailer = trailer_of(self.context.store, self.context.prefix, self.stream, leaf)
            if (first, end) == (leaf.first_offset, leaf.next_offset):
                return [self._whole(path, trailer)]
            return self._part(path, trailer, first, end)
        except (CorruptDataError, NotFoundError) as exc:
            exc.located(stream=self.stream, offset=leaf.first_offset, key=path)
            return exc

    def _key(self, first: int, end: int, kind: Literal["fragment", "hole"] = "fragment") -> DataKey:
        return DataKey(self.stream, first, end, self.epoch, self.context.new_uid(), kind)

    def _whole(self, path: str, trailer: Trailer) -> int:
        """Copy an object inside the bucket; only its trailer is another."""
        key = self._key(trailer.first_offset, trailer.next_offset)
        end = trailer.size - TRAILER_SIZE
        new = replace(trailer, epoch=self.epoch, floor=self.floor).encode()
        target, write_id = key.path(self.context.prefix), f"{key.uid:016x}-{trailer.data_crc:08x}"
        if end >= MIN_PART_BYTES:
            parts: list[Part] = [CopyPart(path, 0, end), BytesPart(new)]
            self.composer.compose(target, parts, write_id=write_id)
        else:
            data = bytes(self.context.store.get(path, 0, end)) + new
            self.context.store.put(target, data, write_id=write_id)
        return trailer.size

    def _part(self, path: str, trailer: Trailer, first: int, end: int) -> list[int]:
        """PUT the chunks of a fragment from `first` to `end`, every one of them checked."""
        context, sizes = self.context, []
        index = read_index(context.store, path, trailer)
        at, lowest = first, trailer.first_chunk_epoch
        for block in blocks(index, begin_of(index, first), _PIECE):
            begin = len(HEADER) + block.start
            data = memoryview(context.store.get(path, begin, begin + block.size))
            chunks = block.chunks(data, lowest=lowest, highest=trailer.last_chunk_epoch)
            for run in runs(each for each in chunks if each is None or each.header.chunk_id < end):
                if run[0].header.chunk_id != at:
                    raise CorruptDataError(f"chunk {at} is damaged")
                made = part_of(run, index, first)
                new = replace(made.trailer, epoch=self.epoch, floor=self.floor)
                key = self._key(new.first_offset, new.next_offset)
                whole = made.data[:-TRAILER_SIZE] + new.encode()
                write_id = f"{key.uid:016x}-{new.data_crc:08x}"
                context.store.put(key.path(context.prefix), whole, write_id=write_id)
                sizes.append(len(whole))
                at, lowest = new.next_offset, new.last_chunk_epoch
            if at >= end:
                return sizes
        raise CorruptDataError(f"chunk {at} is damaged")
