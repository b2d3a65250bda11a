"""Bytes of a bucket's objects, kept on a local disk for the next read.

    CachedStore(S3ObjectStore(bucket=...), DiskCache("/var/cache/coldstream", 10 * 2**30), "bucket")

Objects are immutable and their keys unique, so what was read once is right for ever; what is in the
cache may outlive its object. It is for reading what a manifest refers to, never for whoever asks
whether an object is there (verify, scrub, collect).

The disk is as hostile as the network: each file says what it is of and has a CRC32 over all of it.
Where anything is wrong, the file is removed and the bytes are fetched. No error of the disk is an
error of a read. A cache belongs to one process at a time, so that its bound holds.

    "CSDC" | u32 CRC32 of what follows | u32 bytes of name | u64 bytes of body | name | body
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO

from coldstream.crc import crc32
from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.fragment import Buffer
from coldstream.ports import ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from coldstream.adapters.place import Remote

_MAGIC = b"CSDC"
_HEAD = struct.Struct(">4sIIQ")
_PART = ".part"
_OURS = re.compile(r"[0-9a-f]{40}(?:\.[0-9a-f]{8}\.part)?")
#: When it is full, so much of it is left, so that not every write removes something.
_LEFT = 0.9
_MAX_DOUBTED = 1000


class DiskCache:
    """Files in a directory, the least recently used of which go first. Safe between threads.

    Args:
        directory: of its own; made if it is not there.
        max_bytes: of all files.

    Attributes:
        hits: reads that it has answered.
        misses: reads that it could not answer.
        damaged: files that were removed because they were not what they should be.

    Raises:
        InvalidInputError: the directory cannot be used, or another cache has it.
    """

    def __init__(self, directory: str | Path, max_bytes: int) -> None:
        if max_bytes < 1:
            raise InvalidInputError(f"a cache of {max_bytes} bytes")
        self._base = Path(directory)
        self._max_bytes = max_bytes
        self._files: OrderedDict[str, int] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()
        self.hits = self.misses = self.damaged = 0
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner = self._owned()
            self._look()
        except OSError as exc:
            raise InvalidInputError(
                f"{str(self._base)[:300]!r} cannot be a cache: {exc.strerror or exc}"
            ) from exc

    @property
    def held(self) -> int:
        """Bytes of all files."""
        return self._total

    def close(self) -> None:
        """Leave the directory to another one; the files stay, and a read that goes on has none."""
        self._owner.close()

    def get(self, name: str, most: int) -> memoryview | None:
        """What is kept under a name; None if it is not here, or not what it should be.

        Args:
            name: of any characters.
            most: bytes; what is larger is not what was asked for.
        """
        file_name = _file_name(name)
        if self._owner.closed:
            return None
        try:
            body = self._read(file_name, name.encode(), most)
        except FileNotFoundError:
            body = None
        except (OSError, CorruptDataError):
            self.damaged += 1
            self._remove(file_name)
            body = None
        if body is None:
            self.misses += 1
            return None
        self.hits += 1
        with self._lock:
            if file_name in self._files:
                self._files.move_to_end(file_name)
        with suppress(OSError):
            os.utime(self._base / file_name)
        return body

    def put(self, name: str, body: Buffer) -> None:
        """Keep bytes under a name, if the disk takes them."""
        label = name.encode()
        size = _HEAD.size + len(label) + len(body)
        if size > self._max_bytes * (1 - _LEFT) or self._owner.closed:
            return  # it would drive out too much, or be missing in the next owner's total
        tail = struct.pack(">IQ", len(label), len(body)) + label
        head = _MAGIC + struct.pack(">I", crc32(body, crc32(tail)))
        file_name = _file_name(name)
        part = self._base / f"{file_name}.{secrets.token_hex(4)}{_PART}"
        self._make_room(size)
        try:
            with part.open("xb") as file:
                file.write(head + tail)
                file.write(body)
            part.replace(self._base / file_name)
        except OSError:
            with suppress(OSError):
                part.unlink()
            with self._lock:
                self._total -= size
            return
        with self._lock:
            self._total -= self._files.pop(file_name, 0)
            self._files[file_name] = size

    def _owned(self) -> BinaryIO:
        file = (self._base / ".lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            file.close()
            raise InvalidInputError(
                f"another cache has the directory {str(self._base)[:300]!r}"
            ) from exc
        return file

    def _look(self) -> None:
        """Take over what an earlier process has left."""
        found = []
        for entry in os.scandir(self._base):
            # Whatever else somebody has put here is not ours: never counted, never removed.
            if not _OURS.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            if entry.name.endswith(_PART):
                Path(entry.path).unlink()
            else:
                stat = entry.stat(follow_symlinks=False)
                found.append((stat.st_mtime_ns, entry.name, stat.st_size))
        for _, name, size in sorted(found):
            self._files[name] = size
            self._total += size
        self._make_room(0)

    def _read(self, file_name: str, label: bytes, most: int) -> memoryview:
        # Whatever lies there: to open a FIFO would wait for its writer, and nobody else knows it.
        descriptor = os.open(self._base / file_name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            stat = os.fstat(descriptor)
            if not S_ISREG(stat.st_mode):
                raise CorruptDataError("no file of bytes")
            size = stat.st_size
            if not _HEAD.size + len(label) <= size <= _HEAD.size + len(label) + most:
                raise CorruptDataError(f"a file of {size} bytes")
            data = memoryview(file.read(size))
        if len(data) != size:
            raise CorruptDataError("the file is cut")
        magic, crc, named, length = _HEAD.unpack_from(data)
        begin = _HEAD.size + named
        if magic != _MAGIC or begin + length != size or crc32(data[8:]) != crc:
            raise CorruptDataError("the file is damaged")
        if data[_HEAD.size : begin] != label:
            raise CorruptDataError("the file is of something else")
        return data[begin:]

    def _make_room(self, size: int) -> None:
        """Count so many bytes more, and remove what has to go for them."""
        gone = []
        with self._lock:
            self._total += size
            if self._total > self._max_bytes:
                while self._files and self._total > self._max_bytes * _LEFT:
                    name, freed = self._files.popitem(last=False)
                    self._total -= freed
                    gone.append(name)
        for name in gone:
            with suppress(OSError):
                (self._base / name).unlink()

    def _remove(self, file_name: str) -> None:
        with self._lock:
            self._total -= self._files.pop(file_name, 0)
        with suppress(OSError):
            (self._base / file_name).unlink()


class CachedStore:
    """An object store whose ranges go through a cache; all else passes.

    Nodes of manifests pass, too: they are few, and kept in memory.

    Args:
        store: the bucket.
        cache: what is kept of it.
        place: tells buckets apart that share a cache.
    """

    def __init__(self, store: ObjectStore, cache: DiskCache, place: str) -> None:
        self._store, self._cache, self._place = store, cache, place
        self._doubted: set[str] = set()

    @property
    def bucket(self) -> ObjectStore:
        """What is behind it."""
        return self._store

    def over(self, bucket: ObjectStore) -> CachedStore:
        """The same cache before another store."""
        made = CachedStore(bucket, self._cache, self._place)
        made._doubted = self._doubted
        return made

    def close(self) -> None:
        """Leave the cache's directory to another one; the files stay."""
        self._cache.close()

    def doubt(self, key: str) -> None:
        """Do not answer with what is kept of an object: it may have come damaged."""
        if len(self._doubted) >= _MAX_DOUBTED:
            self._doubted.clear()
        self._doubted.add(key)

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        """As the port says."""
        self._store.put(key, body, write_id=write_id, crc=crc)

    def get(self, key: str, start: int, end: int) -> Buffer:
        """As the port says."""
        name = self._name("range", key, start, end)
        found = self._kept(key, name, end - start)
        if found is not None and len(found) == end - start:
            return found
        return self._fetched(name, lambda: self._store.get(key, start, end))

    def get_all(self, key: str, *, limit: int) -> bytes:
        """As the port says."""
        return self._store.get_all(key, limit=limit)

    def get_suffix(self, key: str, length: int) -> bytes:
        """As the port says."""
        name = self._name("suffix", key, length)
        found = self._kept(key, name, length)
        if found is not None:
            return bytes(found)
        return bytes(self._fetched(name, lambda: self._store.get_suffix(key, length)))

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """As the port says."""
        return self._store.level(prefix, start_after=start_after, limit=limit)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As the port says."""
        return self._store.list(prefix, start_after=start_after, limit=limit)

    def _kept(self, key: str, name: str, most: int) -> memoryview | None:
        return None if key in self._doubted else self._cache.get(name, most)

    def _name(self, *parts: object) -> str:
        return "\0".join(map(str, (self._place, *parts)))

    def _fetched(self, name: str, fetch: Callable[[], Buffer]) -> Buffer:
        data = fetch()
        self._cache.put(name, data)
        return data


def on_disk(remote: Remote, directory: str | Path, max_bytes: int) -> CachedStore:
    """The bucket of a remote tier with a cache before it.

    Args:
        remote: of the bucket.
        directory: of the cache alone.
        max_bytes: of all its files.

    Raises:
        InvalidInputError: the directory cannot be used, or another cache has it.
    """
    place = remote.place
    label = f"{place.endpoint}/{place.region}/{place.bucket}"
    return CachedStore(remote.store, DiskCache(directory, max_bytes), label)


def _file_name(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=20).hexdigest()
