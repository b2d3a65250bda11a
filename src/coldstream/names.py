"""Keys of objects and of items in the catalog table, and the names that they are made of.

Object keys (docs/reference/formats.md), everything under a prefix that ends in "/":

    <prefix>stream/<stream>/data/<first:020d>-<next:020d>.<epoch:010d>.<uid>.fragment
    <prefix>stream/<stream>/metadata/root.<epoch:010d>.<version:012d>.<uid>.manifest
    <prefix>stream/<stream>/metadata/<first:020d>.<uid>.group    (.kgroup and .mgroup above it)
    <prefix>stream/<stream>/metadata/collect.<created_ms:013d>.<uid>.marks
    <prefix>stream/<stream>/metadata/erasure.<created_ms:013d>.<uid>.record

`<stream>` is the broker's directory name. It is opaque, and it is checked against the broker's own
alphabet before it goes into a path or a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from coldstream.errors import InvalidInputError

DEFAULT_PREFIX = "rabbitmq/"

# The catalog table: partition key = prefix + stream, sort key = what the item is about.
CATALOG_PARTITION_KEY = "stream"
CATALOG_SORT_KEY = "item"
CATALOG_ITEM = "catalog"
HEARTBEAT_ITEM = "heartbeat"
WORDS_ITEM = "words"
OFFSET_ITEM = "offset"
POLICIES_ITEM = "policies"  # its partition key is the bare prefix

SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
FRAGMENT_SUFFIX = ".fragment"
HOLE_SUFFIX = ".hole"

#: RabbitMQ's own limit for names of virtual hosts and queues, in bytes.
MAX_NAME = 255
MAX_OFFSET = 2**64 - 1
MAX_EPOCH = 2**32 - 1  # ten digits in a key, 32 bits in a manifest entry

_STREAM = re.compile(r"[A-Za-z0-9_=-]{1,255}")
#: Some policies of AWS name the prefix again and again, and have 6,144 characters; a key has 1,024
#: bytes, of which we need 400.
MAX_PREFIX = 128
_PREFIX = re.compile(r"(?:[A-Za-z0-9!_.*'()=-]+/){1,8}")
_DATA_KEY = re.compile(
    r"(?P<prefix>.*?)stream/(?P<stream>[A-Za-z0-9_=-]{1,255})/data/"
    r"(?P<first>[0-9]{20})-(?P<next>[0-9]{20})\.(?P<epoch>[0-9]{10})\.(?P<uid>[0-9a-f]{16})"
    r"\.(?P<kind>fragment|hole)",
    re.ASCII,
)
_METADATA_KEY = re.compile(
    r"(?P<prefix>.*?)stream/(?P<stream>[A-Za-z0-9_=-]{1,255})/metadata/(?:"
    r"root\.(?P<epoch>[0-9]{10})\.(?P<version>[0-9]{12})\.(?P<root>[0-9a-f]{16})\.manifest"
    r"|(?P<first>[0-9]{20})\.(?P<group>[0-9a-f]{16})\.(?P<level>group|kgroup|mgroup)"
    r"|collect\.(?P<created>[0-9]{13})\.(?P<marks>[0-9a-f]{16})\.marks"
    r"|erasure\.(?P<erased>[0-9]{13})\.(?P<erasure>[0-9a-f]{16})\.record"
    r"|quarantine\.(?P<claim>[0-9]{10})\.(?P<record>[0-9a-f]{16})\.record)",
    re.ASCII,
)
_GROUP_SUFFIXES = {1: "group", 2: "kgroup", 3: "mgroup"}


@dataclass(frozen=True, slots=True)
class DataKey:
    """All that the key of a fragment or hole says.

    Attributes:
        stream: directory name of the stream.
        first_offset: offset of the first record.
        next_offset: one past the last record; always greater than `first_offset`.
        epoch: epoch of the writer that uploaded it (or of what it replaces).
        uid: 64-bit id of the upload attempt.
        kind: "fragment", or "hole" for a range that both tiers have lost.
    """

    stream: str
    first_offset: int
    next_offset: int
    epoch: int
    uid: int
    kind: Literal["fragment", "hole"] = "fragment"

    def path(self, prefix: str) -> str:
        """The object's full key below `prefix`."""
        return (
            f"{data_prefix(prefix, self.stream)}{self.first_offset:020d}-{self.next_offset:020d}"
            f".{self.epoch:010d}.{self.uid:016x}.{self.kind}"
        )


@dataclass(frozen=True, slots=True)
class RootKey:
    """All that the key of a root says."""

    stream: str
    epoch: int
    version: int
    uid: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """All that the key of a group says; `level` is 1, or 2 and 3 for kilo- and mega-groups."""

    stream: str
    first_offset: int
    uid: int
    level: int


@dataclass(frozen=True, slots=True)
class MarkKey:
    """All that the key of a collect record says; `created_ms` since the Unix epoch."""

    stream: str
    created_ms: int
    uid: int


@dataclass(frozen=True, slots=True)
class QuarantineKey:
    """All that the key of a quarantine record says; `epoch` is that of the root that names it."""

    stream: str
    epoch: int
    uid: int


@dataclass(frozen=True, slots=True)
class ErasureKey:
    """All that the key of an erasure record says; `created_ms` since the Unix epoch."""

    stream: str
    created_ms: int
    uid: int


def check_stream(stream: str) -> str:
    """Return `stream` if it can be a broker's directory name.

    Raises:
        InvalidInputError: it has other characters than the broker uses, or is too long.
    """
    if not _STREAM.fullmatch(stream):
        raise InvalidInputError(f"not a stream directory name: {stream[:80]!r}")
    return stream


def made_ns(stream: str) -> int:
    """When a broker made a directory, ns since the Unix epoch, as its name ends; 0 if it does not.

    A made-up name may end in any number: what is beyond the year 2286 is none.
    """
    end = stream.rpartition("_")[2]
    return int(end) if end.isascii() and end.isdecimal() and len(end) < 20 else 0


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is one to eight path parts that end in "/", of 128 characters at most.

    Raises:
        InvalidInputError: it is not.
    """
    if not _PREFIX.fullmatch(prefix) or ".." in prefix or "." in prefix.split("/"):
        raise InvalidInputError(f"not a key prefix such as 'rabbitmq/': {prefix[:80]!r}")
    if len(prefix) > MAX_PREFIX:
        raise InvalidInputError(
            f"a key prefix has at most {MAX_PREFIX} characters, not {len(prefix)}: {prefix[:80]!r}"
        )
    return prefix


@lru_cache(maxsize=1024)
def data_prefix(prefix: str, stream: str) -> str:
    """Where the fragments of a stream lie."""
    return f"{check_prefix(prefix)}stream/{check_stream(stream)}/data/"


def stream_prefix(prefix: str, stream: str) -> str:
    """Where everything of a stream lies."""
    return f"{check_prefix(prefix)}stream/{check_stream(stream)}/"


def heartbeat_partition(prefix: str) -> str:
    """The partition key of the heartbeats of a cluster's agents; no stream has one like it."""
    return f"#agents/{check_prefix(prefix)}"


def words_partition(prefix: str) -> str:
    """Partition key of what a cluster's agents say of their streams; no stream has one like it."""
    return f"#words/{check_prefix(prefix)}"


def offsets_partitions(prefix: str) -> str:
    """How the partition keys of a cluster's stored offsets begin; no stream's key begins so."""
    return f"#offsets/{check_prefix(prefix)}"


def offsets_partition(prefix: str, stream: str) -> str:
    """The partition key of the offsets that consumers have stored for a stream."""
    return f"{offsets_partitions(prefix)}{check_stream(stream)}"


def list_start(prefix: str, stream: str, offset: int) -> str:
    """A key that sorts just before every data key whose first offset is `offset` or more."""
    return f"{data_prefix(prefix, stream)}{offset:020d}"


def root_path(prefix: str, stream: str, epoch: int, version: int, uid: int) -> str:
    """The key of a root."""
    return (
        f"{check_prefix(prefix)}stream/{check_stream(stream)}/metadata/"
        f"root.{epoch:010d}.{version:012d}.{uid:016x}.manifest"
    )


def metadata_prefix(prefix: str, stream: str) -> str:
    """Where the roots, groups and collect records of a stream lie."""
    return f"{stream_prefix(prefix, stream)}metadata/"


def group_path(prefix: str, stream: str, first_offset: int, uid: int, level: int) -> str:
    """The key of a group; `level` as in `GroupKey`, and the number of its `EntryKind`."""
    return (
        f"{metadata_prefix(prefix, stream)}{first_offset:020d}.{uid:016x}.{_GROUP_SUFFIXES[level]}"
    )


def collect_prefix(prefix: str, stream: str) -> str:
    """Where the records of `collect` lie."""
    return f"{metadata_prefix(prefix, stream)}collect."


def collect_path(prefix: str, stream: str, created_ms: int, uid: int) -> str:
    """The key of a record of what `collect` saw unreferenced; sorts by time."""
    return f"{metadata_prefix(prefix, stream)}collect.{created_ms:013d}.{uid:016x}.marks"


def quarantine_prefix(prefix: str, stream: str) -> str:
    """Where the quarantine records of a stream lie."""
    return f"{metadata_prefix(prefix, stream)}quarantine."


def quarantine_path(prefix: str, stream: str, epoch: int, uid: int) -> str:
    """The key of a record of what a claim has cut off; sorts by epoch."""
    return f"{quarantine_prefix(prefix, stream)}{epoch:010d}.{uid:016x}.record"


def erasure_prefix(prefix: str, stream: str) -> str:
    """Where the erasure records of a stream lie."""
    return f"{metadata_prefix(prefix, stream)}erasure."


def erasure_path(prefix: str, stream: str, created_ms: int, uid: int) -> str:
    """The key of a record of which messages are erased; sorts by time."""
    return f"{erasure_prefix(prefix, stream)}{created_ms:013d}.{uid:016x}.record"


MetadataKey = RootKey | GroupKey | MarkKey | QuarantineKey | ErasureKey


def parse_metadata_key(key: str, prefix: str) -> MetadataKey:
    """Read the key of a root, a group, or a record of `collect`, quarantine or erasure.

    Raises:
        InvalidInputError: it lies outside `prefix`, or breaks the grammar in any way.
    """
    match = _METADATA_KEY.fullmatch(key)
    if match is None or match["prefix"] != prefix:
        raise InvalidInputError("not the key of a root, group or record", key=key[:400])
    stream = match["stream"]
    if match["root"]:
        if int(match["epoch"]) > MAX_EPOCH:
            raise InvalidInputError("a key whose epoch is out of range", key=key)
        return RootKey(stream, int(match["epoch"]), int(match["version"]), int(match["root"], 16))
    if match["group"]:
        if int(match["first"]) > MAX_OFFSET:
            raise InvalidInputError("a key whose offset is out of range", key=key)
        level = next(n for n, suffix in _GROUP_SUFFIXES.items() if suffix == match["level"])
        return GroupKey(stream, int(match["first"]), int(match["group"], 16), level)
    if match["record"]:
        if int(match["claim"]) > MAX_EPOCH:
            raise InvalidInputError("a key whose epoch is out of range", key=key)
        return QuarantineKey(stream, int(match["claim"]), int(match["record"], 16))
    if match["erasure"]:
        return ErasureKey(stream, int(match["erased"]), int(match["erasure"], 16))
    return MarkKey(stream, int(match["created"]), int(match["marks"], 16))


def parse_data_key(key: str, prefix: str) -> DataKey:
    """Read the key of a fragment or hole.

    Raises:
        InvalidInputError: it lies outside `prefix`, or breaks the grammar in any way.
    """
    match = _DATA_KEY.fullmatch(key)
    if match is None or match["prefix"] != prefix:
        raise InvalidInputError("not the key of a fragment or hole", key=key[:400])
    first, next_offset = int(match["first"]), int(match["next"])
    if not first < next_offset <= MAX_OFFSET:
        raise InvalidInputError("a key whose offsets are no range", key=key)
    if int(match["epoch"]) > MAX_EPOCH:
        raise InvalidInputError("a key whose epoch is out of range", key=key)
    return DataKey(
        stream=match["stream"],
        first_offset=first,
        next_offset=next_offset,
        epoch=int(match["epoch"]),
        uid=int(match["uid"], 16),
        kind="hole" if match["kind"] == "hole" else "fragment",
    )
