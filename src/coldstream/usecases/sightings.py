"""The records of `collect`: which objects it saw unreferenced, and when.

A record is two gzip members, so that its first kilobytes say what it is about: a line of JSON with
the state it was made under and the first and last key, and then the keys, one a line, sorted. A
stream with millions of dead objects has many records; a step reads those that overlap its own part
of the listing, one after the other, and holds of each only what it asks for.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.names import (
    SightingsKey,
    collect_path,
    collect_prefix,
    parse_metadata_key,
    stream_prefix,
)
from coldstream.plans.collect import Record
from coldstream.usecases.listing import pages
from coldstream.usecases.load import World

VERSION = 2
MAX_COMPRESSED = 16 * 2**20
MAX_RECORD = 64 * 2**20
_HEADER_BYTES = 4096  # compressed or not, no header has more
_GZIP = 31  # zlib's word for a gzip member


@dataclass(frozen=True, slots=True)
class State:
    """The state of a stream that a record was made under: only that very state makes it a proof.

    The revision alone would not do: a table that is restored twice from one backup counts the same
    numbers twice.
    """

    revision: int
    token: int

    @classmethod
    def of(cls, item: CatalogItem) -> State:
        """The state that an item is in."""
        return cls(item.revision, item.state_token)


@dataclass(frozen=True, slots=True)
class Header:
    """What a record says of itself.

    Attributes:
        state: that it was made under.
        first: its first key, in full.
        last: its last key, in full.
        count: of its keys.
    """

    state: State
    first: str
    last: str
    count: int


def list_records(world: World, stream: str) -> list[Record]:
    """All records of a stream, in order of the time in their keys."""
    records: list[Record] = []
    for page in pages(world, collect_prefix(world.prefix, stream)):
        for row in page:
            try:
                key = parse_metadata_key(row.key, world.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, SightingsKey):
                records.append(Record(key, row.key, row.modified_ms, row.size))
    return records


def write_record(
    world: World, stream: str, *, run_ms: int, state: State, keys: Collection[str]
) -> Record:
    """Write down what is unreferenced now, at least one key; gives the record with S3's own time.

    Raises:
        NotFoundError: S3 does not list what was just written.
    """
    uid = world.new_uid()
    path = collect_path(world.prefix, stream, run_ms, uid)
    under = stream_prefix(world.prefix, stream)
    lines = sorted(key.removeprefix(under) for key in keys)
    header = {
        "version": VERSION,
        "stream": stream,
        "revision": state.revision,
        "state_token": f"{state.token:016x}",
        "first": lines[0],
        "last": lines[-1],
        "count": len(lines),
    }
    body = gzip.compress(json.dumps(header).encode() + b"\n", mtime=0)
    body += gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    world.store.put(path, body, write_id=f"{uid:016x}-{zlib.crc32(body):08x}")
    for row in world.store.list(path, limit=1):
        return Record(SightingsKey(stream, run_ms, uid), path, row.modified_ms, row.size)
    raise NotFoundError("a record that was just written is not listed", stream=stream, key=path)


def read_header(world: World, stream: str, record: Record) -> Header:
    """What a record says of itself, from its first kilobytes.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: damaged, of another version, or of another stream.
    """
    size = min(record.size, _HEADER_BYTES)
    data = world.store.get(record.path, 0, size) if size else b""
    member = zlib.decompressobj(_GZIP)
    try:
        line = member.decompress(data, _HEADER_BYTES)
        if not member.eof:
            raise ValueError("no header")
        return _parsed(line, stream, stream_prefix(world.prefix, stream))
    except (zlib.error, ValueError, KeyError, TypeError) as exc:
        raise _unreadable(exc, stream, record.path) from exc


def seen_in(world: World, stream: str, record: Record, wanted: Collection[str]) -> set[str]:
    """Those of `wanted` that the record names; nothing of one that is damaged anywhere.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: damaged, too large, or of another stream.
    """
    data = world.store.get_all(record.path, limit=MAX_COMPRESSED)
    under = stream_prefix(world.prefix, stream)
    found: set[str] = set()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            header = _parsed(file.readline(_HEADER_BYTES), stream, under)
            size = count = 0
            # To the very end, because only there gzip knows whether all of it was right.
            while line := file.readline(_HEADER_BYTES):
                size += len(line)
                count += 1
                if size > MAX_RECORD:
                    raise ValueError("more than 64 MiB")
                key = under + line.decode().rstrip("\n")
                if key in wanted:
                    found.add(key)
            if count != header.count:
                raise ValueError(f"{count} keys instead of {header.count}")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as exc:
        raise _unreadable(exc, stream, record.path) from exc
    return found


def _parsed(line: bytes, stream: str, under: str) -> Header:
    document = json.loads(line)
    if document["version"] != VERSION or document["stream"] != stream:
        raise ValueError("not a record of this version and stream")
    first, last, count = document["first"], document["last"], document["count"]
    revision, token = document["revision"], int(document["state_token"], 16)
    numbers = isinstance(revision, int) and isinstance(count, int)
    if not (numbers and isinstance(first, str) and isinstance(last, str)):
        raise ValueError("a header with other fields")
    return Header(State(revision, token), under + first, under + last, count)


def _unreadable(exc: Exception, stream: str, path: str) -> CorruptDataError:
    return CorruptDataError(f"a collect record that cannot be read: {exc}", stream=stream, key=path)
