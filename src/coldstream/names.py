"""Plain strings that several parts must agree on: keys, settings, metrics, stack outputs.

Object keys (DESIGN section 4), everything under a prefix that ends in "/":

    <prefix>stream/<stream>/data/<first:020d>-<next:020d>.<epoch:010d>.<uid>.fragment
    <prefix>stream/<stream>/metadata/root.<epoch:010d>.<version:012d>.<uid>.manifest

`<stream>` is the broker's directory name. It is opaque, and it is checked against the broker's own
alphabet before it goes into a path or a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from coldstream.errors import InvalidInputError

DEFAULT_PREFIX = "rabbitmq/"

ENV_BUCKET = "COLDSTREAM_BUCKET"
ENV_TABLE = "COLDSTREAM_TABLE"
ENV_PREFIX = "COLDSTREAM_PREFIX"
ENV_QUEUE_URL = "COLDSTREAM_COMMIT_QUEUE_URL"

STACK_NAME = "coldstream"
OUTPUT_BUCKET = "BucketName"
OUTPUT_TABLE = "TableName"
OUTPUT_PREFIX = "Prefix"
OUTPUT_QUEUE_URL = "CommitQueueUrl"
OUTPUT_DEAD_LETTERS_URL = "CommitDeadLettersUrl"
OUTPUT_COMMIT_FUNCTION = "CommitFunctionName"
OUTPUT_RECONCILE_FUNCTION = "ReconcileFunctionName"
OUTPUT_AGENT_ROLE = "AgentRoleArn"
OUTPUT_AGENT_POLICY = "AgentPolicyArn"

# The catalog table: partition key = prefix + stream, sort key = what the item is about.
CATALOG_PARTITION_KEY = "stream"
CATALOG_SORT_KEY = "item"
CATALOG_ITEM = "catalog"

METRIC_NAMESPACE = "coldstream"
METRIC_COMMITS = "CommitsLanded"
METRIC_CONFLICTS = "CommitConflicts"
METRIC_FRAGMENTS_COMMITTED = "FragmentsCommitted"
METRIC_BYTES_COMMITTED = "BytesCommitted"
METRIC_FRAGMENTS_REFUSED = "FragmentsRefused"
METRIC_EVENTS_REFUSED = "EventsRefused"

SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
FRAGMENT_SUFFIX = ".fragment"
HOLE_SUFFIX = ".hole"

MAX_OFFSET = 2**64 - 1
MAX_EPOCH = 2**32 - 1  # ten digits in a key, 32 bits in a manifest entry

_STREAM = re.compile(r"[A-Za-z0-9_=-]{1,255}")
_PREFIX = re.compile(r"(?:[A-Za-z0-9!_.*'()=-]+/){1,8}")
_DATA_KEY = re.compile(
    r"(?P<prefix>.*?)stream/(?P<stream>[A-Za-z0-9_=-]{1,255})/data/"
    r"(?P<first>[0-9]{20})-(?P<next>[0-9]{20})\.(?P<epoch>[0-9]{10})\.(?P<uid>[0-9a-f]{16})"
    r"\.(?P<kind>fragment|hole)",
    re.ASCII,
)


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


def check_stream(stream: str) -> str:
    """Return `stream` if it can be a broker's directory name.

    Raises:
        InvalidInputError: it has other characters than the broker uses, or is too long.
    """
    if not _STREAM.fullmatch(stream):
        raise InvalidInputError(f"not a stream directory name: {stream[:80]!r}")
    return stream


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it is one to eight path parts that end in "/".

    Raises:
        InvalidInputError: it is not.
    """
    if not _PREFIX.fullmatch(prefix) or ".." in prefix or "." in prefix.split("/"):
        raise InvalidInputError(f"not a key prefix such as 'rabbitmq/': {prefix[:80]!r}")
    return prefix


def data_prefix(prefix: str, stream: str) -> str:
    """Where the fragments of a stream lie."""
    return f"{check_prefix(prefix)}stream/{check_stream(stream)}/data/"


def stream_prefix(prefix: str, stream: str) -> str:
    """Where everything of a stream lies."""
    return f"{check_prefix(prefix)}stream/{check_stream(stream)}/"


def list_start(prefix: str, stream: str, offset: int) -> str:
    """A key that sorts just before every data key whose first offset is `offset` or more."""
    return f"{data_prefix(prefix, stream)}{offset:020d}"


def root_path(prefix: str, stream: str, epoch: int, version: int, uid: int) -> str:
    """The key of a root."""
    return (
        f"{check_prefix(prefix)}stream/{check_stream(stream)}/metadata/"
        f"root.{epoch:010d}.{version:012d}.{uid:016x}.manifest"
    )


def parse_data_key(key: str, prefix: str) -> DataKey:
    """Read the key of a fragment or hole.

    Raises:
        InvalidInputError: it lies outside `prefix`, or breaks the grammar in any way.
    """
    match = _DATA_KEY.fullmatch(key)
    if match is None or match["prefix"] != prefix:
        raise InvalidInputError("not the key of a fragment or hole", key=key[:400])
    first, following = int(match["first"]), int(match["next"])
    if not first < following <= MAX_OFFSET:
        raise InvalidInputError("a key whose offsets are no range", key=key)
    if int(match["epoch"]) > MAX_EPOCH:
        raise InvalidInputError("a key whose epoch is out of range", key=key)
    return DataKey(
        stream=match["stream"],
        first_offset=first,
        next_offset=following,
        epoch=int(match["epoch"]),
        uid=int(match["uid"], 16),
        kind="hole" if match["kind"] == "hole" else "fragment",
    )
