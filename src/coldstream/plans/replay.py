"""What a replay publishes of a chunk, and under which publishing ids.

The id of an entry is the offset behind its last message. So ids rise as offsets do, and the last id
that a broker has says where to go on; an entry is there as a whole or not at all. A sub-batch stays
as it is, compressed as it was; where a bound lies inside it, its wanted messages go one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.osiris.chunk import Buffer, Chunk
from coldstream.osiris.entry import encode_simple, iter_entries, iter_records


@dataclass(frozen=True, slots=True)
class Row:
    """One entry to publish.

    Attributes:
        number: publishing id: the offset after its last message.
        entry: its bytes, as a chunk has them.
        messages: how many it has.
    """

    number: int
    entry: Buffer
    messages: int


def rows(chunk: Chunk, start: int, end: int, *, largest: int) -> Iterator[Row]:
    """What to publish of the offsets [start, end) of a user chunk, in order.

    Args:
        chunk: checked.
        start: offset.
        end: offset.
        largest: bytes of an entry; a larger sub-batch goes message by message. A message that is
            larger itself is given as it is: the broker may take it, and the caller can say so.

    Raises:
        CorruptDataError: an entry is damaged.
    """
    singly: list[tuple[int, int]] = []
    for first, records, entry in iter_entries(chunk):
        behind = first + records
        if behind <= start or first >= end:
            continue
        if records == 1 or (start <= first and behind <= end and len(entry) <= largest):
            if singly:
                yield from _singly(chunk, singly)
                singly = []
            yield Row(behind, entry, records)
        else:
            singly.append((max(first, start), min(behind, end)))
    if singly:
        yield from _singly(chunk, singly)


def _singly(chunk: Chunk, spans: list[tuple[int, int]]) -> Iterator[Row]:
    """The messages of these ranges of offsets, each as an entry."""
    last = spans[-1][1]
    for offset, body in iter_records(chunk):
        if offset >= last:
            return
        if any(first <= offset < end for first, end in spans):
            yield Row(offset + 1, encode_simple(body), 1)


def first_offset(sequence: int, start: int) -> int:
    """Where to go on.

    The entry that the broker has last is sent once more: it is dropped there, and confirmed when
    what the broker has is committed, so that nothing which a fail-over may still take is relied on.

    Args:
        sequence: last publishing id that the broker has, 0 for none.
        start: offset at which the replay begins.
    """
    return max(start, sequence - 1)
