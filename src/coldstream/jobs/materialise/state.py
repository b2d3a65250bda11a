"""What a table knows of its streams: one small JSON object, named by the table's metadata.

The object is written under a name of its own before the commit that points to it, so data, offsets
and pointer change in one step, whoever rewrites, compacts or expires the table's snapshots later:
the pointer is a property of the table, not of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import Any

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.jobs.materialise.ranges import MAX_RANGES, Ranges, parse_ranges
from coldstream.manifest.ledger import Ledger
from coldstream.names import MAX_EPOCH, MAX_OFFSET, check_stream

VERSION = 1
#: A state of 100,000 streams has about 10 MB.
MAX_STATE_BYTES = 64 * 2**20

_NONE: Mapping[str, Ranges] = MappingProxyType({})
#: Ranges by the epoch of the manifest that they were read from.
ByEpoch = Mapping[int, Ranges]
_NO_EPOCHS: Mapping[str, ByEpoch] = MappingProxyType({})
_NO_BEGINS: Mapping[str, tuple[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ticket:
    """Of the runs that would put messages of a stream into tables, the one whose turn it is.

    Attributes:
        number: of the last ticket that was drawn; 0 if none was.
        open: whether its run has still to commit rows.
    """

    number: int = 0
    open: bool = False


NO_TICKET = Ticket()
_NO_TICKETS: Mapping[str, Ticket] = MappingProxyType({})
#: A million windows a second would take 285 years.
MAX_TICKET = 2**53


@dataclass(frozen=True, slots=True)
class TableState:
    """What has been decided about which offsets.

    Attributes:
        covered: by stream: offsets whose messages are in the table, or in its dead letters.
        lost: by stream: offsets that were gone before the table could have them: a hole, or
            retention was quicker. They count as covered too. Of very many ranges the last ones are
            kept: they are for people.
        under: by stream: what is covered, by the epoch of the manifest that it was read from. What
            is in none was read before there was such a thing, so before all the rest. Also what a
            table of the latest has rows of and has forgotten (`without`).
        begins: by stream of which nothing is covered yet: where the table begins, because its rule
            says `next`, and the epoch of the manifest then; 0 if that had none.
        tickets: by stream, where one was drawn: see `window_commit`.
        owed: by stream: those of the covered offsets that the next run has to make anew, because
            one has begun to: see `window_commit`.
    """

    covered: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    lost: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)
    under: Mapping[str, ByEpoch] = field(default_factory=lambda: _NO_EPOCHS)
    begins: Mapping[str, tuple[int, int]] = field(default_factory=lambda: _NO_BEGINS)
    tickets: Mapping[str, Ticket] = field(default_factory=lambda: _NO_TICKETS)
    owed: Mapping[str, Ranges] = field(default_factory=lambda: _NONE)

    def knows(self, stream: str) -> bool:
        """Whether anything was decided about a stream."""
        return stream in self.covered or stream in self.begins

    def begin_of(self, stream: str, ledger: Ledger) -> int | None:
        """Where the table begins in a stream of which it has nothing yet; None if nobody has said.

        Args:
            stream: directory name.
            ledger: of its manifest now: what was cut off since is new again.
        """
        if stream not in self.begins:
            return None
        offset, epoch = self.begins[stream]
        return min(offset, ledger.ceiling(epoch)) if epoch else offset

    def of(self, stream: str) -> Ranges:
        """What is covered of one stream."""
        return self.covered.get(stream, Ranges())

    def cut_off(self, stream: str, ledger: Ledger) -> Ranges:
        """What is known of one stream and belongs to a history that was cut off since.

        What was read under an epoch stands up to the lowest floor of all later claims. Nothing can
        be said about a table that has no epochs of a stream yet.

        Args:
            stream: directory name.
            ledger: of its manifest now.
        """
        under = dict(self.under.get(stream, {}))
        if not under:
            return Ranges()
        under[min(under)] |= self._in_none(stream)
        found = Ranges()
        for epoch, ranges in under.items():
            found |= ranges & Ranges.of([(ledger.ceiling(epoch), MAX_OFFSET)])
        return found

    def standing(self, stream: str, ledger: Ledger) -> ByEpoch:
        """What is known of one stream by epoch, if nothing of it was cut off; else nothing.

        Args:
            stream: directory name.
            ledger: of its manifest now.
        """
        return {} if self.cut_off(stream, ledger) else self.under.get(stream, {})

    def _in_none(self, stream: str) -> Ranges:
        """What was read before the table had epochs."""
        rest = self.of(stream)
        for ranges in self.under.get(stream, {}).values():
            rest -= ranges
        return rest

    def with_more(
        self,
        covered: Mapping[str, Ranges],
        lost: Mapping[str, Ranges],
        epochs: Mapping[str, int] = MappingProxyType({}),
        begins: Mapping[str, int] = MappingProxyType({}),
        tickets: Mapping[str, Ticket] = _NO_TICKETS,
        owes: Mapping[str, Ranges] = _NONE,
        stands: Mapping[str, ByEpoch] = _NO_EPOCHS,
    ) -> TableState:
        """This state after a commit.

        Args:
            covered: new offsets by stream.
            lost: offsets by stream that exist nowhere any more; part of `covered`.
            epochs: of the manifests that `covered` was read from, by stream, where known.
            begins: where the table begins in streams of which it has nothing; whoever was first has
                said it.
            tickets: by stream, in the place of those that it had.
            owes: offsets by stream that are owed from now on.
            stands: of `under`, what none of the claims up to `epochs` has cut off: that is as good
                as read under it, and epochs do not become more and more.
        """
        under = dict(self.under)
        for stream in covered.keys() & epochs.keys():
            new, epoch = covered[stream], epochs[stream]
            by_epoch = {known: old - new for known, old in under.get(stream, {}).items()}
            # What is in none counts as the oldest, and must not become younger unseen.
            moves = {} if self._in_none(stream) else stands.get(stream, {})
            for known, ranges in moves.items():
                if known < epoch:
                    same = by_epoch.get(known, Ranges()) & ranges
                    by_epoch[known] = by_epoch.get(known, Ranges()) - same
                    new |= same
            by_epoch[epoch] = by_epoch.get(epoch, Ranges()) | new
            under[stream] = {known: ranges for known, ranges in by_epoch.items() if ranges}
        after = _merged(self.covered, covered)
        first = {name: (at, epochs.get(name, 0)) for name, at in begins.items()} | {**self.begins}
        first = {name: each for name, each in first.items() if not after.get(name)}
        numbered = {**self.tickets, **tickets}
        owed = _less(_merged(self.owed, owes), _merged(covered, lost))
        all_lost = _merged(_less(self.lost, covered), lost)  # a repair may have brought some back
        told = {stream: ranges.newest(MAX_RANGES) for stream, ranges in all_lost.items()}
        return TableState(after, told, under, first, numbered, owed)

    def without(self, forgets: Mapping[str, Ranges], gone: Mapping[str, Ranges]) -> TableState:
        """This state where a table has to read some offsets again.

        Rows of them stay until then, so by which epoch they were read is still known: a later
        fail-over may cut them off.

        Args:
            forgets: offsets by stream.
            gone: those by stream whose rows go at once.
        """

        under = {
            name: {epoch: ranges - gone.get(name, Ranges()) for epoch, ranges in each.items()}
            for name, each in self.under.items()
        }
        kept = {name: {e: r for e, r in each.items() if r} for name, each in under.items()}
        return TableState(
            _less(self.covered, forgets),
            _less(self.lost, forgets),
            {name: each for name, each in kept.items() if each},
            self.begins,
            self.tickets,
            self.owed,
        )

    def encode(self) -> bytes:
        """As JSON.

        Raises:
            InvalidInputError: more than `MAX_RANGES` ranges of one stream.
        """
        document = {
            "version": VERSION,
            "streams": {
                stream: {
                    "covered": _json(self.of(stream)),
                    **({"begins": list(self.begins[stream])} if stream in self.begins else {}),
                    **({"lost": _json(self.lost[stream])} if self.lost.get(stream) else {}),
                    **({"owed": _json(self.owed[stream])} if self.owed.get(stream) else {}),
                    **({"under": _under_json(self.under[stream])} if stream in self.under else {}),
                    **({"ticket": astuple(self.tickets[stream])} if stream in self.tickets else {}),
                }
                for stream in sorted(self.covered.keys() | self.begins.keys() | self.tickets.keys())
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
        owed = {name: parse_ranges(each.get("owed", ())) for name, each in streams.items()}
        under = {
            name: _parse_under(each["under"]) for name, each in streams.items() if "under" in each
        }
        begins = {
            name: _parse_begin(each["begins"]) for name, each in streams.items() if "begins" in each
        }
        numbered = {name: each["ticket"] for name, each in streams.items() if "ticket" in each}
        tickets = {name: _parse_ticket(each) for name, each in numbered.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CorruptDataError(f"a table's state cannot be read: {exc}") from exc
    return TableState(_some(covered), _some(lost), under, begins, tickets, _some(owed))


def _json(ranges: Ranges) -> list[list[int]]:
    if len(ranges.spans) > MAX_RANGES:
        raise InvalidInputError(f"{len(ranges.spans)} ranges of one stream, more than {MAX_RANGES}")
    return ranges.to_json()


def _under_json(under: ByEpoch) -> list[list[Any]]:
    return [[epoch, _json(ranges)] for epoch, ranges in sorted(under.items())]


def _parse_under(value: Any) -> ByEpoch:
    under = {epoch: parse_ranges(ranges) for epoch, ranges in value}
    if not all(type(epoch) is int and 0 < epoch <= MAX_EPOCH for epoch in under):
        raise ValueError("an epoch is out of range")
    return under


def _parse_begin(value: Any) -> tuple[int, int]:
    offset, epoch = value
    numbers = type(offset) is int and type(epoch) is int
    if not numbers or not (0 <= offset <= MAX_OFFSET and 0 <= epoch <= MAX_EPOCH):
        raise ValueError("where a stream begins is out of range")
    return offset, epoch


def _parse_ticket(value: Any) -> Ticket:
    number, is_open = value
    if type(number) is not int or type(is_open) is not bool or not 0 < number <= MAX_TICKET:
        raise ValueError("a ticket is none")
    return Ticket(number, is_open)


def _some(ranges: Mapping[str, Ranges]) -> Mapping[str, Ranges]:
    return {name: each for name, each in ranges.items() if each}


def _less(known: Mapping[str, Ranges], gone: Mapping[str, Ranges]) -> Mapping[str, Ranges]:
    return _some({name: each - gone.get(name, Ranges()) for name, each in known.items()})


def _merged(old: Mapping[str, Ranges], more: Mapping[str, Ranges]) -> Mapping[str, Ranges]:
    merged = dict(old)
    for stream, ranges in more.items():
        merged[stream] = merged.get(stream, Ranges()) | ranges
    return merged
