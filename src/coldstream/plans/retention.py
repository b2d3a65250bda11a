"""What retention takes: the oldest fragments, while they are too old or too many bytes in all.

As in RabbitMQ, whichever rule says so first wins, a fragment goes as a whole, and the last one
stays. Retention only moves the first offset forward. Groups are not rewritten: one that goes as a
whole is never even fetched, because its entry has its size and its greatest timestamp; one that
goes in part stays, and the root remembers how much of it is dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, head_of, leaves_backwards


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits of one stream; None where there is none.

    Attributes:
        max_age_ms: a fragment whose greatest timestamp is longer ago than this goes.
        max_bytes: the oldest fragments go until the rest has at most this many bytes.
    """

    max_age_ms: int | None = None
    max_bytes: int | None = None


class Reason(StrEnum):
    """Why a range goes."""

    MAX_AGE = "max-age"
    MAX_BYTES = "max-length-bytes"


@dataclass(frozen=True, slots=True)
class Retired:
    """A range that goes, and why.

    Attributes:
        first_offset: where it begins.
        next_offset: one past its end.
        size: bytes of its fragments.
        fragments: number of its fragments and holes.
        min_timestamp: of its chunks, ms.
        max_timestamp: of its chunks, ms.
        reason: the rule that it breaks.
        groups: whole groups in it, which nobody had to fetch.
    """

    first_offset: int
    next_offset: int
    size: int
    fragments: int
    min_timestamp: int
    max_timestamp: int
    reason: Reason
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """What goes, and the root without it: the very same root if nothing goes."""

    ranges: tuple[Retired, ...]
    root: Root

    @property
    def size(self) -> int:
        """Bytes that go."""
        return sum(each.size for each in self.ranges)

    @property
    def fragments(self) -> int:
        """Fragments and holes that go."""
        return sum(each.fragments for each in self.ranges)


def may_be_due(
    rule: RetentionLimits, *, first_timestamp: int, total_size: int, fragments: int, now_ms: int
) -> bool:
    """Whether a look at the root can be worth it, from what the catalog item says."""
    return fragments > 1 and (
        (rule.max_bytes is not None and total_size > rule.max_bytes)
        or (rule.max_age_ms is not None and first_timestamp < now_ms - rule.max_age_ms)
    )


def plan_retention(root: Root, rule: RetentionLimits, *, now_ms: int, fetch: Fetch) -> Retention:
    """What goes of `root` by `rule`.

    Args:
        root: current one.
        rule: limits.
        now_ms: ms since the Unix epoch.
        fetch: gives the groups of the tree; those on one path are asked for, and those that
            neither rule settles as a whole.
    """
    if rule == RetentionLimits() or root.fragments < 2:
        return Retention((), root)
    scan = _Scan(root, rule, now_ms, fetch)
    ranges = _joined(scan.retired())
    first = ranges[-1].next_offset if ranges else root.first_offset
    if first == root.first_offset:
        return Retention((), root)
    entries = root.entries.part(root.entries.number_of_offset(first) or 0)
    head = head_of(entries, first, fetch)
    ledger = root.ledger.above(first)
    return Retention(
        ranges, replace(root, first_offset=first, ledger=ledger, entries=entries, head=head)
    )


class _Scan:
    def __init__(self, root: Root, rule: RetentionLimits, now_ms: int, fetch: Fetch) -> None:
        self._root = root
        self._fetch = fetch
        self._most = rule.max_bytes
        self._oldest = None if rule.max_age_ms is None else now_ms - rule.max_age_ms
        self._left = root.total_size
        last = (e for e in leaves_backwards(root, fetch) if e.kind is EntryKind.FRAGMENT)
        #: Where the last fragment begins: it stays, and so does what lies behind it.
        self._stays = next(last, root.entries[-1]).first_offset

    def retired(self) -> Iterator[Retired]:
        head = self._root.head
        dead = (head.dead_size, head.dead_fragments) if head else (0, 0)
        yield from self._level(self._root.entries, dead)

    def _level(self, entries: Entries, dead: tuple[int, int]) -> Iterator[Retired]:
        """What goes of one node; ends the whole scan (`_stays`) at the first entry that stays."""
        first = self._root.first_offset
        dead_size, dead_fragments = dead
        for entry in entries:
            if entry.next_offset <= first:
                dead_size -= entry.size
                dead_fragments -= entry.fragments
                continue
            size, fragments = entry.size - dead_size, entry.fragments - dead_fragments
            reason = self._reason(entry, size)
            if reason is not None:
                self._left -= size
                yield _retired(entry, first, size, fragments, reason)
            elif entry.kind.level and entry.first_offset < self._stays:
                yield from self._level(self._fetch(entry).entries, (dead_size, dead_fragments))
            else:
                self._stays = 0
            if self._stays < entry.next_offset:
                return
            dead_size = dead_fragments = 0

    def _reason(self, entry: Entry, size: int) -> Reason | None:
        """The rule by which all of `entry` goes; None if it stays, or only a part of it goes."""
        if entry.next_offset > self._stays:
            return None
        if self._oldest is not None and entry.max_timestamp < self._oldest:
            return Reason.MAX_AGE
        if self._most is None:
            return None
        # A fragment goes while there are too many bytes with it, a group if even without it.
        rest = self._left - size if entry.kind.level else self._left
        return Reason.MAX_BYTES if rest > self._most else None


def _retired(entry: Entry, first: int, size: int, fragments: int, reason: Reason) -> Retired:
    return Retired(
        first_offset=max(entry.first_offset, first),
        next_offset=entry.next_offset,
        size=size,
        fragments=fragments,
        min_timestamp=entry.min_timestamp,
        max_timestamp=entry.max_timestamp,
        reason=reason,
        groups=1 if entry.kind.level else 0,
    )


def _joined(ranges: Iterable[Retired]) -> tuple[Retired, ...]:
    """Neighbours with one reason as one range."""
    done: list[Retired] = []
    for each in ranges:
        last = done[-1] if done else None
        if last is None or last.reason is not each.reason:
            done.append(each)
            continue
        done[-1] = replace(
            last,
            next_offset=each.next_offset,
            size=last.size + each.size,
            fragments=last.fragments + each.fragments,
            min_timestamp=min(last.min_timestamp, each.min_timestamp),
            max_timestamp=max(last.max_timestamp, each.max_timestamp),
            groups=last.groups + each.groups,
        )
    return tuple(done)
