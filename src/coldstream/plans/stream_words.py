"""What agents say of their streams: words, packed into pages that fit an item of the catalog.

A stream's page is known from its name and how many pages there are, so whoever asks about one
stream reads one page a node, and an agent writes those pages only in which something has changed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import CorruptDataError
from coldstream.names import MAX_NAME, MAX_OFFSET

#: The names of the watermarks, in the order in which data passes them.
MARKS = ("committed", "cut", "uploaded", "verified", "published")
_PER_PAGE = 64
#: Above 65,536 streams of a node its pages grow.
MAX_PAGES = 2**10
#: An item has at most 400 KB.
MAX_PACKED = 300_000
_MAX_UNPACKED = 2**20
_MAX_REASON = 300
_MAX_NUMBER = 2**63 - 1
_NUMBERS = 2 * len(MARKS) + 4


@dataclass(frozen=True, slots=True)
class StreamWord:
    """What one agent says of one stream. Times in ms since the Unix epoch, by the agent's clock.

    Attributes:
        stream: directory name.
        writer: whether the stream's writer is on its node, as far as it knows.
        offsets: of the watermarks, in the order of `MARKS`.
        times_ms: when each was seen to move there; 0 for never.
        lag_ms: for how long the oldest committed chunk has waited to be published.
        lag_bytes: that are not published.
        headroom_ms: until local retention takes some of these; -1 where nothing is known to.
        stuck_since_ms: since when it has made no progress although something waits; 0 if it does.
        reason: why it makes none, or what its error is; at most 300 characters.
        super_stream: of which it is a partition; "" if of none, or nobody knows.
        unproved_ms: for how long the oldest has waited that is in its local log, and neither
            proved to be committed nor published as far as it knows; 0 if there is none.
        local_end: where the messages of its local log end then; 0 if there is none.
    """

    stream: str
    writer: bool
    offsets: tuple[int, ...]
    times_ms: tuple[int, ...]
    lag_ms: int = 0
    lag_bytes: int = 0
    headroom_ms: int = -1
    stuck_since_ms: int = 0
    reason: str = ""
    super_stream: str = ""
    unproved_ms: int = 0
    local_end: int = 0


@dataclass(frozen=True, slots=True)
class WordsPage:
    """One of the pages of a node.

    Attributes:
        node: name.
        number: of the page, from 0 on.
        count: how many pages the node has; a power of two.
        at_ms: when it was written, ms since the Unix epoch, by the agent's clock.
        data: as `pack` made it.
    """

    node: str
    number: int
    count: int
    at_ms: int
    data: bytes


def page_count(streams: int) -> int:
    """How many pages a node with so many streams has."""
    count = 1
    while count * _PER_PAGE < streams and count < MAX_PAGES:
        count *= 2
    return count


def page_of(stream: str, count: int) -> int:
    """On which of `count` pages a stream is."""
    return zlib.crc32(stream.encode()) % count


def paged(words: Iterable[StreamWord], count: int) -> Mapping[int, Sequence[StreamWord]]:
    """All words by page; a page without any is among them, so that what it said is taken back."""
    pages: dict[int, list[StreamWord]] = {number: [] for number in range(count)}
    for word in words:
        pages[page_of(word.stream, count)].append(word)
    return pages


def pack(words: Iterable[StreamWord]) -> bytes:
    """Words of a page; those of the last streams are left out where an item cannot hold them all.

    zlib over JSON: a list of [stream, writer, [offset, time] of each mark, lag_ms, lag_bytes,
    headroom_ms, stuck_since_ms, reason, super_stream, unproved_ms, local_end]. An agent of an
    earlier version leaves the last two out.
    """
    rows = [_row(each) for each in words]
    while True:
        text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        data = zlib.compress(text.encode(errors="surrogatepass"), 6)
        if len(data) <= MAX_PACKED and len(text.encode(errors="surrogatepass")) <= _MAX_UNPACKED:
            return data
        del rows[len(rows) // 2 :]


def unpack(data: bytes) -> list[StreamWord]:
    """The words of a page, which whoever has an agent's rights may have written.

    Raises:
        CorruptDataError: it is no such page.
    """
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(data[:MAX_PACKED], _MAX_UNPACKED)
        if inflate.unconsumed_tail or not inflate.eof:
            raise CorruptDataError("a page of an agent's words that is cut off, or too long")
        rows = json.loads(text)
        if not isinstance(rows, list):
            raise ValueError("no list")
        return [_word(row) for row in rows]
    except (zlib.error, ValueError, TypeError, RecursionError) as exc:
        raise CorruptDataError(f"a page of an agent's words that is none: {exc!r}"[:200]) from exc


def _row(word: StreamWord) -> list[object]:
    return [
        word.stream,
        int(word.writer),
        *(number for pair in zip(word.offsets, word.times_ms, strict=True) for number in pair),
        word.lag_ms,
        word.lag_bytes,
        word.headroom_ms,
        word.stuck_since_ms,
        word.reason[:_MAX_REASON],
        word.super_stream,
        word.unproved_ms,
        word.local_end,
    ]


def _word(row: object) -> StreamWord:
    if not isinstance(row, list) or len(row) not in (_NUMBERS + 4, _NUMBERS + 6):
        raise ValueError("a row of another length")
    stream, writer, *numbers = row[: _NUMBERS + 2]
    reason, super_stream, *above = row[_NUMBERS + 2 :]
    texts = all(isinstance(each, str) for each in (stream, reason, super_stream))
    if not texts or not 0 < len(stream) <= MAX_NAME or len(super_stream) > MAX_NAME:
        raise ValueError("a name that none can be")
    if not all(type(each) is int for each in (writer, *numbers, *above)):
        raise ValueError("a field of another type")
    known = (*numbers, *above)
    if not all(-1 <= each <= _MAX_NUMBER for each in known) or max(numbers[:10:2]) > MAX_OFFSET:
        raise ValueError("a number that none can be")
    unproved_ms, local_end = above or (0, 0)
    word = StreamWord(
        stream,
        bool(writer),
        tuple(max(0, each) for each in numbers[:10:2]),
        tuple(max(0, each) for each in numbers[1:10:2]),
        *numbers[10:],
    )
    return replace(
        word,
        reason=reason[:_MAX_REASON],
        super_stream=super_stream,
        unproved_ms=max(0, unproved_ms),
        local_end=min(max(0, local_end), MAX_OFFSET),
    )
