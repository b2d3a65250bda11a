"""Reading the remote tier: an offset spec in, checked chunks and messages out.

What programs use is here: `open_tier` (or `open_async_tier`) and what it leads to; the manual is
docs/how-to/read-from-python.md. `StreamReader` is the layer below, on any store and catalog.
"""

from coldstream.columns.damage import CorruptRange
from coldstream.errors import ColdstreamError
from coldstream.osiris.chunk import Chunk
from coldstream.read_policy import ReadPolicy
from coldstream.reader.aio import AsyncRemoteTier, AsyncStream, open_async_tier
from coldstream.reader.allocation import keep_freed_memory
from coldstream.reader.asked import Filter
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.library import (
    RemoteTier,
    Stream,
    StreamEntry,
    open_tier,
)
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.spec import (
    Bound,
    First,
    Last,
    Next,
    Offset,
    OffsetSpec,
    Timestamp,
    parse_bound,
    parse_spec,
)
from coldstream.reader.stream import Message, StreamReader
from coldstream.remote.nodes import PROCESS_NODES

__all__ = [
    "PROCESS_BUDGET",
    "PROCESS_NODES",
    "AsyncRemoteTier",
    "AsyncStream",
    "Bound",
    "Chunk",
    "ColdstreamError",
    "CorruptRange",
    "Filter",
    "First",
    "Gap",
    "GapReason",
    "Last",
    "MemoryBudget",
    "Message",
    "Next",
    "Offset",
    "OffsetSpec",
    "ReadPolicy",
    "ReaderSettings",
    "RemoteTier",
    "Stream",
    "StreamEntry",
    "StreamReader",
    "Timestamp",
    "keep_freed_memory",
    "open_async_tier",
    "open_tier",
    "parse_bound",
    "parse_spec",
]
