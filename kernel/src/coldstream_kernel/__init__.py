"""The compiled loops of coldstream, by ctypes: one shared library, no Python ABI.

`kernel.c` says what they do; `coldstream.columns.decode` and `coldstream.soundness` call them.
Addresses go in as integers, so whoever calls keeps the buffers alive.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

#: Of the signatures and structs below; the library must say the same.
ABI = 5

#: Another build of the library, such as one with a sanitizer.
ENV_LIBRARY = "COLDSTREAM_KERNEL"

#: What `coldstream_walk` answers.
END, FULL, SUB_BATCH, DAMAGED = range(4)

#: What `Columns.format` says, by what `coldstream.osiris.body` calls it.
FORMATS = {"auto": 0, "amqp": 1, "bytes": 2}

#: The fields of `properties` in the order of the arrays `texts` and `numbers`.
PROPERTY_FIELDS = (
    "message_id",
    "message_id_type",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "correlation_id_type",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)


#: The fields of `header` in the order of the array `headers`.
HEADER_FIELDS = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")


class Check(Structure):
    """`struct check`."""

    _fields_ = (
        ("data", c_void_p),
        ("bounds", c_void_p),
        ("begin", c_void_p),
        ("end", c_void_p),
        ("expected", c_void_p),
        ("chunks", c_int64),
        ("entries", c_void_p),
        ("simple", c_void_p),
        ("good", c_int64),
        ("crc", c_int64),
    )


class Walk(Structure):
    """`struct walk`."""

    _fields_ = (
        ("data", c_void_p),
        ("begin", c_void_p),
        ("end", c_void_p),
        ("entries", c_void_p),
        ("records", c_void_p),
        ("first", c_void_p),
        ("last", c_void_p),
        ("chunks", c_int64),
        ("chunk", c_int64),
        ("position", c_int64),
        ("entry", c_int64),
        ("record", c_int64),
        ("messages", c_void_p),
        ("lengths", c_void_p),
        ("rows", c_void_p),
        ("room", c_int64),
        ("found", c_int64),
        ("bytes", c_int64),
        ("most_bytes", c_int64),
        ("stopped", c_int64),
    )


class Text(Structure):
    """`struct text`: a string or binary column."""

    _fields_ = (
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("valid", c_void_p),
        ("used", c_int64),
        ("capacity", c_int64),
    )


class Number(Structure):
    """`struct number`: an int64 or timestamp column, or one of booleans as 0 and 1."""

    _fields_ = (("values", c_void_p), ("valid", c_void_p))


class Map(Structure):
    """`struct map`: a map<string, string> column."""

    _fields_ = (
        ("offsets", c_void_p),
        ("valid", c_void_p),
        ("keys", Text),
        ("values", Text),
        ("used", c_int64),
        ("capacity", c_int64),
    )


class Columns(Structure):
    """`struct columns`."""

    _fields_ = (
        ("messages", c_void_p),
        ("lengths", c_void_p),
        ("count", c_int64),
        ("format", c_int64),
        ("body_kind", POINTER(Text)),
        ("body", POINTER(Text)),
        ("application_properties", POINTER(Map)),
        ("message_annotations", POINTER(Map)),
        ("delivery_annotations", POINTER(Map)),
        ("footer", POINTER(Map)),
        ("properties", c_void_p),
        ("texts", POINTER(Text) * len(PROPERTY_FIELDS)),
        ("numbers", POINTER(Number) * len(PROPERTY_FIELDS)),
        ("header", c_void_p),
        ("headers", POINTER(Number) * len(HEADER_FIELDS)),
        ("left", c_void_p),
        ("left_count", c_int64),
    )


@cache
def library() -> ctypes.CDLL:
    """The library beside this file, or the one that COLDSTREAM_KERNEL names; loaded once.

    Raises:
        ImportError: it is missing, or belongs to another release.
    """
    path = Path(os.environ.get(ENV_LIBRARY) or Path(__file__).with_name("kernel.so"))
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as exc:
        raise ImportError(f"{path} cannot be loaded: {exc}") from exc
    if loaded.coldstream_kernel_abi() != ABI:
        raise ImportError(f"{path} is not of this release")
    loaded.coldstream_check.argtypes = (POINTER(Check),)
    loaded.coldstream_check.restype = c_int32
    loaded.coldstream_walk.argtypes = (POINTER(Walk),)
    loaded.coldstream_walk.restype = c_int32
    loaded.coldstream_columns.argtypes = (POINTER(Columns),)
    loaded.coldstream_columns.restype = None
    loaded.coldstream_raw.argtypes = (c_void_p, c_void_p, c_int64, POINTER(Text))
    loaded.coldstream_raw.restype = c_int32
    return loaded
