"""What every object of a stream holds, told by its bytes: which chunks, and whether they are whole.

The world may harm objects; nobody else may. What was harmed is known here, so that the oracle can
tell a loss that the product has made from one that it had to live with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from coldstream_devkit.simulation.cluster import ChunkId, Cluster
from coldstream_devkit.simulation.erased import ErasedMessages
from coldstream_devkit.simulation.reading import MisreadError, Piece, data_of, trailer_lies

_IDENTITY = Struct(">QQ")
_AT = 16  # epoch and chunk id in a chunk's header (`osiris.chunk`)


@dataclass(slots=True)
class Contents:
    """Objects of one stream.

    Args:
        cluster: gives the one that wrote the chunks.

    Attributes:
        chunks: identities of the chunks that a data object has or had, by key.
        sound: those of them that can still be read from it.
        holders: keys of the objects from which a chunk can be read.
        sizes: bytes of every object that ever was, by key.
        pristine: metadata as it was written, by key.
        born: when each object came, in steps of the history.
        harmed: keys of what the world has damaged, cut or taken away.
        rotten: chunks that the world has damaged somewhere.
        harmed_at: when each object was harmed first, in steps of the history.
        strays: keys of what others have PUT, and no manifest may refer to.
        erased: which messages need not be what the broker wrote.
    """

    cluster: Callable[[], Cluster]
    chunks: dict[str, tuple[ChunkId, ...]] = field(default_factory=dict)
    sound: dict[str, frozenset[ChunkId]] = field(default_factory=dict)
    holders: dict[ChunkId, set[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    pristine: dict[str, bytes] = field(default_factory=dict)
    born: dict[str, int] = field(default_factory=dict)
    harmed: set[str] = field(default_factory=set)
    rotten: set[ChunkId] = field(default_factory=set)
    harmed_at: dict[str, int] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    erased: ErasedMessages = field(default_factory=ErasedMessages)

    def take_over(self, before: Contents) -> None:
        """Know what another one knew."""
        self.chunks, self.sound = dict(before.chunks), dict(before.sound)
        self.sizes, self.born = dict(before.sizes), dict(before.born)
        self.pristine = dict(before.pristine)
        self.holders = {identity: set(keys) for identity, keys in before.holders.items()}
        self.harmed, self.rotten = set(before.harmed), set(before.rotten)
        self.erased = before.erased.copy()

    def add(self, key: str, data: bytes, moment: int, *, epoch: int | None) -> list[str]:
        """A new object; what is wrong with it, in words.

        Args:
            key: of it.
            data: all of it.
            moment: step of the history.
            epoch: that its key says, None if it is no fragment.
        """
        self.sizes[key], self.born[key] = len(data), moment
        if epoch is None:
            if "/metadata/" in key:
                self.pristine[key] = data
            if "/metadata/erasure." in key and key.endswith(".record"):
                self.erased.recorded(data)
            return []
        written = self.cluster().written
        pieces, sound, wrong = [], [], []
        at = 0
        try:
            body = data_of(data)
            while at < len(body):
                number, chunk_id = _IDENTITY.unpack_from(body, at + _AT)
                chunk = written.get((chunk_id, number))
                if chunk is None:
                    wrong.append(f"a chunk {chunk_id} of epoch {number} that no broker has written")
                    break
                found = body[at : at + len(chunk.data)]
                pieces.append(Piece(chunk_id, chunk.next_offset, number, chunk.timestamp, found))
                if self.erased.is_as_written(chunk.data, found, number, chunk_id):
                    sound.append(chunk.identity)
                else:
                    wrong.append(f"chunk {chunk.identity} is not what the broker wrote")
                at += len(chunk.data)
            if len(sound) == len(pieces) and not wrong:
                wrong += [f"its {each} is not so" for each in trailer_lies(data, pieces, epoch)]
        except (MisreadError, IndexError, ValueError) as exc:
            wrong.append(f"unreadable: {exc}")
        self.chunks[key] = tuple((each.chunk_id, each.epoch) for each in pieces)
        self._holds(key, frozenset(sound))
        return wrong

    def add_stray(self, key: str, size: int) -> None:
        """An object of another principal: it holds nothing that counts."""
        self.sizes[key] = size
        self.chunks[key], self.sound[key] = (), frozenset()
        self.harmed.add(key)
        self.strays.add(key)

    def _holds(self, key: str, sound: frozenset[ChunkId]) -> None:
        for identity in self.sound.get(key, frozenset()) - sound:
            self.holders[identity].discard(key)
        self.sound[key] = sound
        for identity in sound:
            self.holders.setdefault(identity, set()).add(key)

    def harm(self, key: str, moment: int, rotten: frozenset[ChunkId] | None = None) -> None:
        """The world has damaged some chunks of an object, or all of it."""
        self.harmed.add(key)
        self.harmed_at.setdefault(key, moment)
        if key in self.chunks:
            chunks = frozenset(self.chunks[key]) if rotten is None else rotten
            self.rotten |= chunks
            self._holds(key, self.sound[key] - chunks)

    def forget(self, key: str) -> tuple[ChunkId, ...]:
        """An object is gone; the chunks that could be read from it."""
        gone = tuple(sorted(self.sound.get(key, frozenset())))
        for identity in gone:
            self.holders[identity].discard(key)
        self.sound[key] = frozenset()
        return gone

    def readable(self, identity: ChunkId) -> bool:
        """Whether some object still has a chunk whole."""
        return bool(self.holders.get(identity))

    def whole(self, key: str) -> bool:
        """Whether all chunks of a data object can be read from it."""
        return len(self.sound.get(key, ())) == len(self.chunks.get(key, ()))
