"""The records of `collect`: which objects it saw unreferenced, and when.

A record is two gzip members, so that its first kilobytes say what it is about: a line of JSON with
the state it was made under and the first and last key, and then the keys, one a line, sorted. A
stream with millions of dead objects has many records; a step reads those that overlap its own part
of the listing, one after the other, and holds of each only what it asks for.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import (
    MarkKey,
    collect_path,
    collect_prefix,
    parse_metadata_key,
    stream_prefix,
)
from coldstream.plans.collect import Record
from coldstream.remote.context import Context

VERSION = 2
MAX_COMPRESSED = 16 * 2**20
MAX_RECORD = 64 * 2**20
#: Ten times what a step writes down.
MAX_KEYS = 1_000_000
_HEADER_BYTES = 4096  # compressed or not, no header has more
_MAX_LINE = 1024  # no key of S3 is longer
_GZIP = 31  # zlib's word for a gzip member
_INPUT, _BLOCK = 2**16, 2**18  # unpacked piece by piece


#: What reading a record raises where it is not what it should be.
_DAMAGE = (zlib.error, RecursionError, ValueError, KeyError, TypeError)


@dataclass(frozen=True, slots=True)
class ProofState:
    """The state of a stream that a record was made under: only that very state makes it a proof.

    The revision alone would not do: a table that is restored twice from one backup counts the same
    numbers twice. Nor would both numbers without the state: whoever may write an item can set the
    one and leave the others, and what was garbage of a live stream would prove its deletion.
    """

    revision: int
    token: int
    state: StreamState = StreamState.LIVE

    @classmethod
    def of(cls, item: CatalogItem) -> ProofState:
        """The state that an item is in."""
        return cls(item.revision, item.state_token, item.state)


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What a record says of itself.

    Attributes:
        state: that it was made under.
        first: its first key, in full.
        last: its last key, in full.
        count: of its keys.
    """

    state: ProofState
    first: str
    last: str
    count: int


def list_records(context: Context, stream: str) -> list[Record]:
    """All records of a stream, in order of the time in their keys."""
    records: list[Record] = []
    for page in context.pages(collect_prefix(context.prefix, stream)):
        for row in page:
            try:
                key = parse_metadata_key(row.key, context.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, MarkKey):
                records.append(Record(key, row.key, row.modified_ms, row.size))
    return records


def write_record(
    context: Context, stream: str, *, run_ms: int, state: ProofState, keys: Collection[str]
) -> Record:
    """Write down what is unreferenced now, at least one key; gives the record with S3's own time.

    Raises:
        NotFoundError: S3 does not list what was just written.
    """
    uid = context.new_uid()
    path = collect_path(context.prefix, stream, run_ms, uid)
    under = stream_prefix(context.prefix, stream)
    lines = sorted(key.removeprefix(under) for key in keys)
    header = {
        "version": VERSION,
        "stream": stream,
        "revision": state.revision,
        "state_token": f"{state.token:016x}",
        "state": state.state,
        "first": lines[0],
        "last": lines[-1],
        "count": len(lines),
    }
    body = gzip.compress(json.dumps(header).encode() + b"\n", mtime=0)
    body += gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    context.store.put(path, body, write_id=f"{uid:016x}-{zlib.crc32(body):08x}")
    for row in context.store.list(path, limit=1):
        return Record(MarkKey(stream, run_ms, uid), path, row.modified_ms, row.size)
    raise NotFoundError("a record that was just written is not listed", stream=stream, key=path)


def read_header(context: Context, stream: str, record: Record) -> RecordHeader:
    """What a record says of itself, from its first kilobytes.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: damaged, of another version, or of another stream.
    """
    size = min(record.size, _HEADER_BYTES)
    data = bytes(context.store.get(record.path, 0, size)) if size else b""
    try:
        return _header(data, stream, stream_prefix(context.prefix, stream))[0]
    except _DAMAGE as exc:
        raise _unreadable(exc, stream, record.path) from exc


def seen_in(context: Context, stream: str, record: Record, wanted: Collection[str]) -> set[str]:
    """Those of `wanted` that the record names; nothing of one that is damaged anywhere.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: damaged, too large, or of another stream.
    """
    data = context.store.get_all(record.path, limit=MAX_COMPRESSED)
    under = stream_prefix(context.prefix, stream)
    found: set[str] = set()
    count, last = 0, b""
    try:
        header, rest = _header(data, stream, under)
        # To the very end, because only there gzip knows whether all of it was right.
        for lines in _lines(rest):
            count += len(lines)
            if count > header.count:
                raise ValueError(f"more keys than the {header.count} of its header")
            for line in lines:
                if line <= last or len(line) > _MAX_LINE:
                    raise ValueError("its keys do not rise, or one is too long")
                last = line
                key = under + line.decode()
                if key in wanted:
                    found.add(key)
        if count != header.count:
            raise ValueError(f"{count} keys instead of {header.count}")
    except _DAMAGE as exc:
        raise _unreadable(exc, stream, record.path) from exc
    return found


def _header(data: bytes, stream: str, under: str) -> tuple[RecordHeader, bytes]:
    """The header, and what of `data` comes after it.

    Raises:
        One of `_DAMAGE`.
    """
    member = zlib.decompressobj(_GZIP)
    line = member.decompress(data, _HEADER_BYTES)
    if not member.eof:
        raise ValueError("no header")
    return _parsed(line, stream, under), member.unused_data


def _lines(data: bytes) -> Iterator[list[bytes]]:
    """The lines of one gzip member that is all of `data`, without their ends, block by block.

    Raises:
        ValueError, zlib.error: it is cut, damaged, or too large.
    """
    size, begun = 0, b""
    for block in _blocks(data):
        size += len(block)
        if size > MAX_RECORD:
            raise ValueError(f"more than {MAX_RECORD / 2**20:g} MiB")
        *lines, begun = (begun + block).split(b"\n")
        if len(begun) > _MAX_LINE:
            raise ValueError("a line that is too long")
        yield lines
    if begun:
        raise ValueError("cut in a line")


def _blocks(data: bytes) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP)
    at = 0
    while not member.eof:
        piece = member.unconsumed_tail or data[at : at + _INPUT]
        at += 0 if member.unconsumed_tail else len(piece)
        block = member.decompress(piece, _BLOCK)
        if not block and not piece:
            raise ValueError("cut")
        yield block
    if member.unused_data or at < len(data):
        raise ValueError("more than its header and its keys")


def _parsed(line: bytes, stream: str, under: str) -> RecordHeader:
    document = json.loads(line)
    if document["version"] != VERSION or document["stream"] != stream:
        raise ValueError("not a record of this version and stream")
    first, last, count = document["first"], document["last"], document["count"]
    revision, token = document["revision"], int(document["state_token"], 16)
    # Records without it are of live streams: no others were looked through then.
    state = StreamState(document.get("state", StreamState.LIVE))
    numbers = isinstance(revision, int) and isinstance(count, int)
    if numbers and not 0 < count <= MAX_KEYS:
        raise ValueError("a header with another number of keys than any record has")
    if not (numbers and isinstance(first, str) and isinstance(last, str)):
        raise ValueError("a header with other fields")
    return RecordHeader(ProofState(revision, token, state), under + first, under + last, count)


def _unreadable(exc: Exception, stream: str, path: str) -> CorruptDataError:
    return CorruptDataError(f"a collect record that cannot be read: {exc}", stream=stream, key=path)
