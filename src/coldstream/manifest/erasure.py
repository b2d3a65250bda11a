"""The erasure record: which offsets of a stream have no content any more, and why.

    {"version": 1, "created_ms": 1763000000000, "reason": "ticket 4711",
     "offsets": [[70, 80, 3], [91, 92, 3]]}

Each row is a range of offsets, the last one excluded, and the epoch of the chunks that had them
(`osiris.blank.Erased`).

PUT before the first commit of an erasure and never changed; all records of a stream count together.
So it is what finishes an erasure that died, what a repair, a rebuild and an agent go by who find
the old bytes elsewhere, and the audit record. It has no property and no value of a message: those
are what had to go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.header import check_version
from coldstream.names import MAX_EPOCH
from coldstream.osiris.blank import Erased

VERSION = 1
#: No record is ever larger.
MAX_RECORD_SIZE = 8 * 2**20
MAX_RANGES = 100_000
MAX_REASON = 2000
_FIELDS = {"version", "created_ms", "reason", "offsets"}
_MAX_TIME_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ErasureRecord:
    """What one run of an erasure was asked for.

    Attributes:
        erased: the messages.
        created_ms: when, ms since the Unix epoch.
        reason: in the words of whoever asked.
    """

    erased: Erased
    created_ms: int
    reason: str = ""

    def encode(self) -> bytes:
        """The object's bytes.

        Raises:
            InvalidInputError: it says nothing, or more than a record holds.
        """
        rows = list(self.erased.rows)
        if not 0 < len(rows) <= MAX_RANGES:
            raise InvalidInputError(
                f"{len(rows)} ranges of offsets to erase; a run takes 1 to"
                f" {MAX_RANGES}: give --from and --until, and do it in parts"
            )
        if len(self.reason) > MAX_REASON:
            raise InvalidInputError(f"a reason of more than {MAX_REASON} characters")
        document = {
            "version": VERSION,
            "created_ms": self.created_ms,
            "reason": self.reason,
            "offsets": rows,
        }
        return json.dumps(document, sort_keys=True).encode() + b"\n"


def parse_erasure(data: bytes) -> ErasureRecord:
    """Read and check a record.

    Raises:
        CorruptDataError: cut, too large, or not what a record says.
        UnknownVersionError: of a later version.
    """
    # The memory of a parser goes with the number of values; a reason may have brackets, too.
    values = data.count(b"[") + data.count(b"{") - MAX_REASON
    if len(data) > MAX_RECORD_SIZE or values > MAX_RANGES + 10:
        raise CorruptDataError(f"an erasure record of {len(data)} bytes")
    try:
        document = json.loads(data)
        check_version("an erasure record", document, VERSION)
        if not isinstance(document, dict) or set(document) != _FIELDS:
            raise ValueError("it has other fields")
        if document["version"] != VERSION:
            raise ValueError(f"version {str(document['version'])[:20]!r} is not known")
        created, reason = document["created_ms"], document["reason"]
        if type(created) is not int or not 0 <= created <= _MAX_TIME_MS:
            raise ValueError("its time is none")
        if not isinstance(reason, str) or len(reason) > MAX_REASON:
            raise ValueError("its reason is none")
        erased = Erased.of(_row(row) for row in document["offsets"])
        if not erased:
            raise ValueError("it names no offsets")
    except (ValueError, TypeError, RecursionError) as exc:
        raise CorruptDataError(f"an erasure record that cannot be read: {exc}") from exc
    return ErasureRecord(erased, created, reason)


def _row(row: object) -> tuple[int, int, int]:
    if not isinstance(row, list) or len(row) != 3 or not all(type(each) is int for each in row):
        raise ValueError("a range that is none")
    if not 0 <= row[2] <= MAX_EPOCH:
        raise ValueError("an epoch that is none")
    return row[0], row[1], row[2]
