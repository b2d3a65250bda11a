"""What a table knows of its streams: one small JSON object, named by the table's metadata.

The object is written under a name of its own before the commit that points to it, so data, offsets
and pointer change in one step, whoever rewrites, compacts or expires the table's snapshots later:
the pointer is a property of the table, not of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.jobs.materialise.ranges import Ranges, parse_ranges
from coldstream.names import check_stream

VERSION = 1
#: A state of 100,000 streams has about 10 MB.
MAX_STATE_BYTES = 64 * 2**20

_NONE: Mapping[str, Ranges] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TableState:
    """What has been decided about which offsets.

    Attributes:
        covered: by stream: offsets whose messages are in the table, or in its dead letters.
        lost: by stream: offsets that were gone before the table could have them: a hole, or
            retention was quicker. They count as covered too.
    """

    covered: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    lost: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)

    def of(self, stream: str) -> Ranges:
        """What is covered of one stream."""
        return self.covered.get(stream, Ranges())

    def with_more(self, covered: Mapping[str, Ranges], lost: Mapping[str, Ranges]) -> TableState:
        """This state after a commit.

        Args:
            covered: new offsets by stream.
            lost: offsets by stream that exist nowhere any more; part of `covered`.
        """
        return TableState(_merged(self.covered, covered), _merged(self.lost, lost))

    def encode(self) -> bytes:
        """As JSON."""
        document = {
            "version": VERSION,
            "streams": {
                stream: {
                    "covered": ranges.to_json(),
                    **({"lost": self.lost[stream].to_json()} if self.lost.get(stream) else {}),
                }
                for stream, ranges in sorted(self.covered.items())
            },
        }
        return json.dumps(document, separators=(",", ":")).encode()


def parse_state(data: bytes) -> TableState:
    """Read a state object.

    Raises:
        CorruptDataError: it is none, or of another version.
    """
    try:
        document: Any = json.loads(data)
        if document["version"] != VERSION:
            raise CorruptDataError(f"state version {document['version']} is not known")
        streams = {check_stream(name): each for name, each in document["streams"].items()}
        covered = {name: parse_ranges(each["covered"]) for name, each in streams.items()}
        lost = {name: parse_ranges(each.get("lost", ())) for name, each in streams.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptDataError(f"a table's state cannot be read: {exc}") from exc
    return TableState(covered, {name: each for name, each in lost.items() if each})


def _merged(old: Mapping[str, Ranges], more: Mapping[str, Ranges]) -> Mapping[str, Ranges]:
    merged = dict(old)
    for stream, ranges in more.items():
        merged[stream] = merged.get(stream, Ranges()) | ranges
    return merged
