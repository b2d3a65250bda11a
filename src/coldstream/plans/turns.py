"""Which idle streams a scheduled run looks at: each once in a longer interval, in turns."""

from __future__ import annotations

from zlib import crc32

#: In how many rounds of the idle streams the bucket is searched once for streams without an item.
SEARCH_ROUNDS = 3


def is_in_turn(stream: str, *, now_ms: int, every_ms: int, idle_ms: int) -> bool:
    """Whether a run at `now_ms` looks at a stream without recent data.

    Every run has a turn, and every stream belongs to one of `idle_ms // every_ms` of them by a
    checksum of its name, so that each run has its share. Where two runs come in one interval, and
    none in another, the streams of that one wait for their next turn.

    Args:
        stream: directory name.
        now_ms: ms since the Unix epoch.
        every_ms: from one run to the next.
        idle_ms: how often each stream is looked at; at least `every_ms`, or every run does.
    """
    turns = idle_ms // every_ms
    if turns <= 1:
        return True
    return crc32(stream.encode()) % turns == now_ms // every_ms % turns
