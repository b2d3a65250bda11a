"""Held files whose places in a log others have taken: kept aside until the next claim.

A broker makes a log anew when its disk was lost, or is cut back by a loss of power. What was
committed before, and is in no manifest yet, can be uploaded until a newer epoch claims the stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.agent.disk.removed import Handle, OfStream, numbers, pair, record
from coldstream.osiris.segment import index_name


def is_worth_keeping(held: OfStream, first: int) -> bool:
    """Whether a held segment has something that was committed and is not durable.

    Args:
        held: of its stream.
        first: its first offset.

    Raises:
        OSError: its index cannot be read.
    """
    index = held.files.get(index_name(first))
    if index is None or index.once <= max(first, held.durable):
        return False
    last = record(index.file, -1)
    return last is not None and int(last["offset"]) >= held.durable


def of_epoch(held: Mapping[str, Handle], epoch: int) -> dict[str, int]:
    """The files of segments that begin in an epoch or an older one.

    Args:
        held: by name.
        epoch: of a broker's chunks.

    Returns:
        By name: all of the stream below was committed when the file was last there.

    Raises:
        OSError: an index cannot be read.
    """
    found: dict[str, int] = {}
    for first in numbers(held):
        if pair(first) <= held.keys():
            begin = record(held[index_name(first)].file, 0)
            if begin is not None and int(begin["epoch"]) <= epoch:
                found |= {name: held[name].once for name in pair(first)}
    return found
