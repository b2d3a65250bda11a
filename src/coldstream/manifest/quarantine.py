"""The quarantine record: what claims have cut off, and what a person has given up since.

A claim that truncates cuts confirmed messages off which the cluster has lost. They stay where they
are; this record says where. It is one JSON document: small, and readable by people with any tool
on the day on which they need it.

    {"version": 1,
     "timelines": [{"epoch": 7, "floor": 960, "next_offset": 1035, "root_key": "rabbitmq/...",
                    "created_ms": 1763000000000, "reason": "...", "complete": true,
                    "listed": [{"key": "rabbitmq/...", "size": 1234}]}],
     "dropped":   [{"epoch": 5, "floor": 900, "until_ms": 1763000000000}]}

Records are never changed. A new one holds all of the one before it that is still kept, and the root
of a manifest names the newest. A release reads only versions that it knows: a field that it would
pass over might be what keeps the last copy of a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.manifest.header import check_version
from coldstream.names import MAX_EPOCH, MAX_OFFSET, DataKey

VERSION = 1
#: No record is ever larger.
MAX_RECORD_SIZE = 16 * 2**20
#: Keys that a timeline names at the most, and all of a record; others are kept all the same.
MAX_LISTED = 10_000
MAX_LISTED_IN_ALL = 50_000
#: Timelines and dropped ones in a record: far more than a cluster has fail-overs that lose data.
MAX_TIMELINES = 1024
#: A claim adds none to so many. The rest is for undoing false claims, which may have filled it.
CLAIMED_TIMELINES = 1000
MAX_REASON = 2000
MAX_TIME_MS = 2**63 - 1
_MAX_KEY = 1024
#: Commas and opening brackets of a record's JSON: the memory of a parser goes with the number of
#: values, and no record that was ever written has half as many.
_MAX_VALUES = 500_000
#: Bytes beside the timelines: for the outermost object, and for as many dropped ones as there may
#: be, so that whatever is in a record can be given up.
_RESERVED = 1024 + 128 * MAX_TIMELINES
#: Bytes of a row of `listed` beside its key and its size.
_ROW = 48


@dataclass(frozen=True, slots=True)
class ListedData:
    """A fragment that no landed root names: its full key and its size in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one claim has cut off.

    Attributes:
        epoch: of the claim.
        floor: where the lost timeline begins: the claim's floor; where the claim has begun the
            stream anew, the lower of that and where the manifest began before.
        next_offset: where the manifest and what could be appended to it ended before.
        root_key: key of the root that was current before; all of its tree that reaches above
            `floor` belongs to the lost timeline. "" if there was none.
        created_ms: when the claim was made, ms since the Unix epoch; 0 if nobody said.
        reason: in words.
        listed: fragments above the floor that are not in that tree.
        complete: whether `listed` has all that S3 had then; there may be more if not. What is not
            named is kept too, because the ledger refuses it.
    """

    epoch: int
    floor: int
    next_offset: int
    root_key: str = ""
    created_ms: int = 0
    reason: str = ""
    listed: tuple[ListedData, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a person has given up: all that one claim cut off, as far as it was there by then.

    Attributes:
        epoch: of the claim.
        floor: as of the timeline.
        until_ms: what S3 took later is not given up; ms since the Unix epoch, by S3's clock.
    """

    epoch: int
    floor: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """All that was cut off and is kept, in rising order of epochs, and what was given up."""

    timelines: tuple[Timeline, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to record."""
        return not self.timelines and not self.dropped

    def timeline(self, epoch: int) -> Timeline | None:
        """What the claim of `epoch` has cut off; None if nothing, or if it was given up."""
        return next((each for each in self.timelines if each.epoch == epoch), None)

    def cuts(self) -> Iterator[tuple[int, int]]:
        """(epoch, floor) of every claim that the record speaks of."""
        yield from ((each.epoch, each.floor) for each in self.timelines)
        yield from ((each.epoch, each.floor) for each in self.dropped)

    @classmethod
    def of(
        cls,
        timelines: Iterable[Timeline],
        dropped: Iterable[Dropped],
        *,
        most: int = MAX_TIMELINES,
    ) -> QuarantineRecord:
        """A record that fits: without some of the listed keys if they are too many or too long.

        The keys of the timelines that come first are kept first, whatever their epochs.

        Raises:
            InvalidInputError: there are too many timelines; some must be given up first.
        """
        given = list(timelines)
        if len(given) > most:
            first = min(given, key=lambda each: each.epoch)
            raise InvalidInputError(
                f"{len(given)} lost timelines, and a quarantine record holds {most}: give"
                " up what nobody needs, as with `coldstream quarantine drop STREAM --timeline"
                f" {first.epoch} --yes`",
                offset=first.floor,
            )
        rows = MAX_LISTED_IN_ALL
        size = MAX_RECORD_SIZE - _RESERVED - sum(_bare_size(each) for each in given)
        fitting = []
        for each in given:
            listed = []
            for row in each.listed[: min(rows, MAX_LISTED)]:
                size -= _ROW + len(json.dumps(row.key)) + len(str(row.size))
                if size < 0:
                    break
                listed.append(row)
            rows -= len(listed)
            if len(listed) < len(each.listed):
                each = replace(each, listed=tuple(listed), complete=False)
            fitting.append(each)
        fitting.sort(key=lambda each: each.epoch)
        return cls(tuple(fitting), tuple(dropped))

    def with_timeline(
        self, timeline: Timeline, *, most: int = CLAIMED_TIMELINES
    ) -> QuarantineRecord:
        """This record with a timeline more, or with another one in the place of that of its epoch.

        What does not fit is left out of `listed`, as `of` does: of the new timeline first.

        Raises:
            InvalidInputError: there are too many timelines; some must be given up first.
        """
        kept = [each for each in self.timelines if each.epoch != timeline.epoch]
        replaced = len(kept) < len(self.timelines)
        return QuarantineRecord.of(
            [*kept, timeline], self.dropped, most=MAX_TIMELINES if replaced else most
        )

    def without(self, epoch: int, floor: int, until_ms: int) -> QuarantineRecord:
        """This record after what the claim of `epoch` cut off was given up.

        Of very many it forgets those that were given up first: `collect` is done with them.
        """
        kept = [each for each in self.dropped if each.epoch != epoch]
        latest = sorted(
            [*kept, Dropped(epoch, floor, until_ms)], key=lambda each: (each.until_ms, each.epoch)
        )[-MAX_TIMELINES:]
        return QuarantineRecord(
            tuple(each for each in self.timelines if each.epoch != epoch),
            tuple(sorted(latest, key=lambda each: each.epoch)),
        )

    def first_cut(self, key: DataKey, claims: Iterator[tuple[int, int]]) -> int | None:
        """Epoch of the claim that cut a fragment off: the first after its own epoch that did.

        Args:
            key: of the fragment.
            claims: (epoch, floor) of the ledger; retention takes old claims out of it, this record
                remembers those that mattered.
        """
        return min(
            (
                epoch
                for epoch, floor in (*claims, *self.cuts())
                if key.epoch < epoch and floor < key.next_offset
            ),
            default=None,
        )

    def gives_up(self, key: DataKey, modified_ms: int, claims: Iterator[tuple[int, int]]) -> bool:
        """Whether a fragment belongs to what was given up: cut off by that claim, and there then.

        Args:
            key: of a fragment that the ledger refuses.
            modified_ms: when S3 took it.
            claims: as in `first_cut`.
        """
        epoch = self.first_cut(key, claims)
        return any(each.epoch == epoch and modified_ms <= each.until_ms for each in self.dropped)

    def encode(self) -> bytes:
        """The object's bytes.

        Raises:
            InvalidInputError: they are more than anybody would read.
        """
        document = {
            "version": VERSION,
            "timelines": [_document(each) for each in self.timelines],
            "dropped": [
                {"epoch": each.epoch, "floor": each.floor, "until_ms": each.until_ms}
                for each in self.dropped
            ],
        }
        data = json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
        if len(data) > MAX_RECORD_SIZE:
            raise InvalidInputError(f"a quarantine record of {len(data)} bytes; drop timelines")
        return data


def _bare_size(timeline: Timeline) -> int:
    """The most bytes of a record for a timeline that lists nothing."""
    return 256 + len(json.dumps(timeline.root_key)) + len(json.dumps(timeline.reason))


def _document(timeline: Timeline) -> dict[str, Any]:
    return {
        "epoch": timeline.epoch,
        "floor": timeline.floor,
        "next_offset": timeline.next_offset,
        "root_key": timeline.root_key,
        "created_ms": timeline.created_ms,
        "reason": timeline.reason,
        "complete": timeline.complete,
        "listed": [{"key": each.key, "size": each.size} for each in timeline.listed],
    }


def parse_record(data: bytes) -> QuarantineRecord:
    """Read and check a record.

    Raises:
        CorruptDataError: cut, too large, or not what a record says.
        UnknownVersionError: of a later version.
    """
    if len(data) > MAX_RECORD_SIZE:
        raise CorruptDataError(f"a quarantine record of {len(data)} bytes")
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > _MAX_VALUES:
        raise CorruptDataError("a quarantine record of more values than any has")
    try:
        document = json.loads(data)
        check_version("a quarantine record", document, VERSION)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        if document.get("version") != VERSION:
            raise ValueError(f"version {str(document.get('version'))[:20]!r} is not known")
        read = _Fields(document, ("version", "timelines", "dropped"))
        record = QuarantineRecord(
            tuple(_timeline(each) for each in read.rows("timelines", MAX_TIMELINES)),
            tuple(_dropped(each) for each in read.rows("dropped", MAX_TIMELINES)),
        )
        for rows in (record.timelines, record.dropped):
            epochs = [each.epoch for each in rows]
            if epochs != sorted(set(epochs)):
                raise ValueError("the epochs do not rise")
    except (ValueError, RecursionError) as exc:
        raise CorruptDataError(f"a quarantine record that cannot be read: {exc}") from exc
    return record


def _timeline(row: object) -> Timeline:
    read = _Fields(row, tuple(_document(Timeline(1, 0, 0))))
    listed = []
    for each in read.rows("listed", MAX_LISTED):
        inner = _Fields(each, ("key", "size"))
        listed.append(ListedData(inner.text("key", _MAX_KEY), inner.number("size", MAX_OFFSET)))
    timeline = Timeline(
        epoch=read.number("epoch", MAX_EPOCH),
        floor=read.number("floor", MAX_OFFSET),
        next_offset=read.number("next_offset", MAX_OFFSET),
        root_key=read.text("root_key", _MAX_KEY),
        created_ms=read.number("created_ms", MAX_TIME_MS),
        reason=read.text("reason", MAX_REASON),
        listed=tuple(listed),
        complete=read.truth("complete"),
    )
    if timeline.epoch < 1 or timeline.floor > timeline.next_offset:
        raise ValueError("a timeline that is no range of offsets")
    return timeline


def _dropped(row: object) -> Dropped:
    read = _Fields(row, ("epoch", "floor", "until_ms"))
    return Dropped(
        read.number("epoch", MAX_EPOCH),
        read.number("floor", MAX_OFFSET),
        read.number("until_ms", MAX_TIME_MS),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """A JSON object with exactly the fields that are expected, each of its own type.

    Raises:
        ValueError: it is something else.
    """

    row: object
    names: tuple[str, ...]
    values: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.row, dict) or set(self.row) != set(self.names):
            raise ValueError(f"not an object with {', '.join(self.names)}")
        object.__setattr__(self, "values", self.row)

    def number(self, name: str, most: int) -> int:
        value = self.values[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise ValueError(f"{name} is out of range")
        return value

    def text(self, name: str, most: int) -> str:
        value = self.values[name]
        if not isinstance(value, str) or len(value) > most:
            raise ValueError(f"{name} is no text of at most {most} characters")
        return value

    def truth(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value

    def rows(self, name: str, most: int) -> list[object]:
        value = self.values[name]
        if not isinstance(value, list) or len(value) > most:
            raise ValueError(f"{name} is no list of at most {most}")
        return value
