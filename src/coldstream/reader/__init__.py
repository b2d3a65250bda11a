"""Reading the remote tier: an offset spec in, checked chunks and messages out."""

from coldstream.columns.damage import CorruptRange
from coldstream.reader.allocation import keep_freed_memory
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.gap import Gap, GapReason
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
    "Bound",
    "CorruptRange",
    "First",
    "Gap",
    "GapReason",
    "Last",
    "MemoryBudget",
    "Message",
    "Next",
    "Offset",
    "OffsetSpec",
    "ReaderSettings",
    "StreamReader",
    "Timestamp",
    "keep_freed_memory",
    "parse_bound",
    "parse_spec",
]
