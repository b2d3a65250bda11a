"""The records of `collect`: which objects it saw unreferenced, and when."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.names import (
    SightingsKey,
    collect_path,
    collect_prefix,
    parse_metadata_key,
    stream_prefix,
)
from coldstream.plans.collect import Record
from coldstream.usecases.load import World

VERSION = 1
MAX_COMPRESSED = 16 * 2**20
MAX_RECORD = 64 * 2**20
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Sightings:
    """A record's content.

    Attributes:
        revision: of the item's state when it was written.
        keys: full keys of the objects.
    """

    revision: int
    keys: frozenset[str]


def list_records(world: World, stream: str) -> list[Record]:
    """All records of a stream, in order of the time in their keys."""
    records: list[Record] = []
    after = ""
    while True:
        page = world.store.list(
            collect_prefix(world.prefix, stream), start_after=after, limit=_PAGE
        )
        for row in page:
            try:
                key = parse_metadata_key(row.key, world.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, SightingsKey):
                records.append(Record(key, row.key, row.modified_ms))
        if len(page) < _PAGE:
            return records
        after = page[-1].key


def write_record(
    world: World, stream: str, *, run_ms: int, revision: int, keys: Collection[str]
) -> Record:
    """Write down what is unreferenced now; gives the record with S3's own time.

    Raises:
        NotFoundError: S3 does not list what was just written.
    """
    uid = world.new_uid()
    path = collect_path(world.prefix, stream, run_ms, uid)
    under = stream_prefix(world.prefix, stream)
    document = {
        "version": VERSION,
        "stream": stream,
        "revision": revision,
        "keys": sorted(key.removeprefix(under) for key in keys),
    }
    body = gzip.compress(json.dumps(document).encode(), mtime=0)
    world.store.put(path, body, write_id=f"{uid:016x}-{zlib.crc32(body):08x}")
    for row in world.store.list(path, limit=1):
        return Record(SightingsKey(stream, run_ms, uid), path, row.modified_ms)
    raise NotFoundError("a record that was just written is not listed", stream=stream, key=path)


def read_record(world: World, stream: str, path: str) -> Sightings:
    """Read a record back.

    Raises:
        NotFoundError: it is gone.
        CorruptDataError: damaged, too large, or of another stream.
    """
    data = world.store.get_all(path, limit=MAX_COMPRESSED)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(MAX_RECORD + 1)
        if len(text) > MAX_RECORD:
            raise CorruptDataError("a collect record of more than 64 MiB", stream=stream, key=path)
        document = json.loads(text)
        keys = document["keys"]
        if (
            document["version"] != VERSION
            or document["stream"] != stream
            or not isinstance(document["revision"], int)
            or not all(isinstance(key, str) for key in keys)
        ):
            raise ValueError("not a record of this stream")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as exc:
        raise CorruptDataError(
            f"a collect record that cannot be read: {exc}", stream=stream, key=path
        ) from exc
    under = stream_prefix(world.prefix, stream)
    return Sightings(document["revision"], frozenset(under + key for key in keys))
