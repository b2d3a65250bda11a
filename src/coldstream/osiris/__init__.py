"""Bytes to values of RabbitMQ's stream files, and back: no I/O, no clock.

A stream is a directory of segment files (`segment`), each with an index (`index`). A segment holds
chunks (`chunk`), a chunk holds entries (`entry`), a filter (`bloom`) and `tracking` data, and an
entry holds messages: AMQP 1.0 (`amqp`, `amqp_types`; as JSON `amqp_json`) or plain bytes (`body`).
What needs numpy is imported when it is asked for: the Lambdas have none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coldstream.osiris.amqp import AmqpMessage, BodyKind, decode_message, encode_data
from coldstream.osiris.amqp_json import to_jsonable
from coldstream.osiris.bloom import FilterMatcher, encode_bloom
from coldstream.osiris.body import BodyFormat, read_message
from coldstream.osiris.chunk import (
    CHUNK_HEADER_SIZE,
    Buffer,
    Chunk,
    ChunkHeader,
    ChunkType,
    chunk_at,
    iter_chunks,
    parse_chunk_header,
)
from coldstream.osiris.entry import (
    MAX_SUB_BATCH_BYTES,
    Codec,
    encode_simple,
    encode_sub_batch,
    iter_messages,
    iter_records,
)
from coldstream.osiris.segment import (
    SEGMENT_HEADER,
    SEGMENT_HEADER_SIZE,
    SEGMENT_MAGIC,
    check_segment_header,
    parse_segment_name,
    segment_name,
)
from coldstream.osiris.tracking import Tracked, TrackingType, parse_tracking

if TYPE_CHECKING:
    from coldstream.osiris.headers import CHUNK_DTYPE
    from coldstream.osiris.index import INDEX_DTYPE, INDEX_HEADER, check_index, index_records

__all__ = [
    "CHUNK_DTYPE",
    "CHUNK_HEADER_SIZE",
    "INDEX_DTYPE",
    "INDEX_HEADER",
    "MAX_SUB_BATCH_BYTES",
    "SEGMENT_HEADER",
    "SEGMENT_HEADER_SIZE",
    "SEGMENT_MAGIC",
    "AmqpMessage",
    "BodyFormat",
    "BodyKind",
    "Buffer",
    "Chunk",
    "ChunkHeader",
    "ChunkType",
    "Codec",
    "FilterMatcher",
    "Tracked",
    "TrackingType",
    "check_index",
    "check_segment_header",
    "chunk_at",
    "decode_message",
    "encode_bloom",
    "encode_data",
    "encode_simple",
    "encode_sub_batch",
    "index_records",
    "iter_chunks",
    "iter_messages",
    "iter_records",
    "parse_chunk_header",
    "parse_segment_name",
    "parse_tracking",
    "read_message",
    "segment_name",
    "to_jsonable",
]

_OF_NUMPY = {"CHUNK_DTYPE": "headers"} | dict.fromkeys(
    ("INDEX_DTYPE", "INDEX_HEADER", "check_index", "index_records"), "index"
)


def __getattr__(name: str) -> Any:
    if name not in _OF_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_OF_NUMPY[name]}"), name)
