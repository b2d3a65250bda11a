"""A manifest made anew from the bucket, beside the live one: where they differ.

It is made as an installed one is: what the live tree names stays where its object is there and its
trailer holds, so that other uploads of a range make no difference. Every difference is a finding.

Both are of one moment: the live tree is the one that an item named, and of the bucket only objects
that end at or below its next offset take part. A commit, a consolidation or a collection meanwhile
may still make the two differ; so a difference counts only if the item names the same root
afterwards, or if it is the same however often the stream is compared anew. Between two holes each
section is built for itself: an upload that came after its hole was committed is a finding of scrub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.jobs.rebuild_differences import Difference, DifferenceKind
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, leaves
from coldstream.names import data_prefix, list_start, parse_data_key
from coldstream.plans.rebuild import KnownManifest, Named, Open, Rebuild
from coldstream.ports import ObjectInfo
from coldstream.remote.context import Context
from coldstream.remote.roots import load_item, load_root
from coldstream.remote.trailers import listed_trailers
from coldstream.usecases.rebuild_objects import sound
from coldstream.usecases.repair_sources import listed_size

_MAX_DIFFERENCES = 10_000
_REPEATS = 4
_FRAGMENTS_A_PART = 1024


@dataclass(slots=True)
class Shadow:
    """What the comparison of one stream came to.

    Attributes:
        stream: directory name.
        version: of the manifest that was compared.
        fragments: of it.
        differences: the first 10,000.
        more: how many more there were.
        repeats: how often it was made again because the manifest moved on.
    """

    stream: str
    version: int = 0
    fragments: int = 0
    differences: list[Difference] = field(default_factory=list)
    more: int = 0
    repeats: int = 0

    def add(
        self, kind: DifferenceKind, first: int, next_offset: int, live: str, rebuilt: str
    ) -> None:
        """Note one difference."""
        if len(self.differences) < _MAX_DIFFERENCES:
            self.differences.append(
                Difference(self.stream, kind, first, next_offset, live, rebuilt)
            )
        else:
            self.more += 1

    def merge(self, part: Shadow) -> None:
        """Add what came of a part."""
        self.fragments += part.fragments
        self.more += part.more
        for each in part.differences:
            self.add(each.kind, each.first_offset, each.next_offset, each.live, each.rebuilt)


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Offsets [first, next_offset) of a stream between two borders of its tree.

    Attributes:
        item: names the manifest.
        first: first offset.
        next_offset: one past the last.
        fragments: in it, about.
    """

    item: CatalogItem
    first: int
    next_offset: int
    fragments: int


def parts_of(context: Context, item: CatalogItem) -> list[StreamPart]:
    """The parts of a stream; each has the fragments of one group, or those of the root.

    Raises:
        CorruptDataError, NotFoundError: the root, or a group above groups, cannot be read.
        UnavailableError: S3 did not answer.
    """
    root, fetch = load_root(context, item), context.fetch(item.stream)
    found: list[StreamPart] = []
    for entry in _groups(root.entries, root.first_offset, fetch):
        first = max(entry.first_offset, root.first_offset)
        last = found[-1] if found else None
        if not entry.kind.level and last is not None and last.fragments < _FRAGMENTS_A_PART:
            joined = replace(last, next_offset=entry.next_offset, fragments=last.fragments + 1)
            found[-1] = joined
        else:
            found.append(StreamPart(item, first, entry.next_offset, entry.fragments))
    return found


def _groups(entries: Iterable[Entry], first_offset: int, fetch: Fetch) -> Iterator[Entry]:
    for entry in entries:
        if entry.next_offset <= first_offset:
            continue
        if entry.kind.level > EntryKind.GROUP:
            yield from _groups(fetch(entry).entries, first_offset, fetch)
        else:
            yield entry


def compare_part(context: Context, part: StreamPart, *, branching: int, trailers: bool) -> Shadow:
    """Compare a part of the live manifest with one made anew; changes nothing.

    Args:
        context: where.
        part: of which stream and manifest.
        branching: entries of a full group.
        trailers: whether every fragment's trailer is read and compared, too.

    Raises:
        UnavailableError: S3 did not answer.
    """
    found = Shadow(part.item.stream, part.item.version)
    section: list[Entry] = []
    try:
        root = load_root(context, part.item)
        for leaf in leaves(root, context.fetch(found.stream), start=part.first):
            if leaf.first_offset >= part.next_offset:
                break
            found.fragments += leaf.kind is EntryKind.FRAGMENT
            if leaf.kind is EntryKind.HOLE:
                _compare_section(context, root, section, found, branching, trailers)
                section = []
            else:
                section.append(leaf)
        _compare_section(context, root, section, found, branching, trailers)
    except (CorruptDataError, NotFoundError) as error:
        kind = DifferenceKind.UNREADABLE
        found.add(kind, part.first, part.next_offset, str(error), "")
    return found


#: Compares parts, in any place, and gives the results in their order.
Perform = Callable[[Sequence[StreamPart]], Iterable[Shadow]]


def shadow(context: Context, stream: str, perform: Perform) -> Shadow:
    """Compare all of a stream.

    Args:
        context: where.
        stream: directory name.
        perform: compares parts.

    Raises:
        NotFoundError: the catalog does not know the stream.
        ConflictError: the stream is being deleted or rebuilt, or moves on all the time.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    lasting: set[Difference] | None = None
    for repeat in range(_REPEATS):
        item = load_item(context, stream)
        found = Shadow(stream, item.version, repeats=repeat)
        try:
            for part in perform(parts_of(context, item)):
                found.merge(part)
        except (CorruptDataError, NotFoundError) as error:
            place = (item.first_offset, item.next_offset)
            found.add(DifferenceKind.UNREADABLE, *place, str(error), "")
        # Whatever was committed meanwhile explains a difference, unless it is there each time.
        if not found.differences or load_item(context, stream).root_key == item.root_key:
            return found
        same = {_without_bounds(each) for each in found.differences}
        lasting = same if lasting is None else lasting & same
    if not lasting:
        raise ConflictError(f"the manifest moved on {_REPEATS} times", stream=stream)
    found.differences = [each for each in found.differences if _without_bounds(each) in lasting]
    return found


def _without_bounds(each: Difference) -> Difference:
    """A difference as it is known again: the words about a node say which one cannot be read, and
    what is told as its range may grow with the stream.
    """
    unreadable = each.kind is DifferenceKind.UNREADABLE
    return replace(each, first_offset=0, next_offset=0) if unreadable else each


def _compare_section(
    context: Context,
    root: Root,
    section: Sequence[Entry],
    found: Shadow,
    branching: int,
    trailers: bool,
) -> None:
    if not section:
        return
    stream = found.stream
    rebuilt = _rebuilt(context, root, section, branching, trailers, stream)
    here = iter(rebuilt)
    other = next(here, None)
    for leaf in section:
        while other is not None and other.next_offset <= leaf.first_offset:
            other = next(here, None)
        if other is None or other.first_offset >= leaf.next_offset:
            place = (leaf.first_offset, leaf.next_offset)
            found.add(DifferenceKind.ABSENT, *place, _in_short(leaf), "")
        elif (other.uid, other.first_offset, other.next_offset) != (
            leaf.uid,
            leaf.first_offset,
            leaf.next_offset,
        ):
            kind = DifferenceKind.OTHER_OBJECT
            if listed_size(context.store, context.prefix, leaf.data_key(stream)) is None:
                kind = DifferenceKind.ABSENT
            found.add(kind, leaf.first_offset, leaf.next_offset, _in_short(leaf), _in_short(other))
        elif not _alike(leaf, other, trailers):
            place = (leaf.first_offset, leaf.next_offset)
            found.add(DifferenceKind.ENTRY, *place, _in_short(leaf), _in_short(other))


def _rebuilt(
    context: Context,
    root: Root,
    section: Sequence[Entry],
    branching: int,
    trailers: bool,
    stream: str,
) -> list[Entry]:
    """Fragments that a rebuild would have for a section of the live tree."""
    begin, end = section[0].first_offset, section[-1].next_offset
    plan = Rebuild(
        context.prefix,
        stream,
        KnownManifest(
            root.ledger,
            first_offset=begin,
            sections=[Named(Entries.of(section), certain=True), Open(end, None)],
        ),
        branching=branching,
        uids=iter(context.new_uid, None),
        trailers=(lambda listed: listed_trailers(context, listed)) if trailers else None,
        sound=(lambda fragments: sound(context, fragments)) if trailers else None,
    )
    made: list[Entry] = []
    for node in plan.groups(_pages(context, stream, begin, end)):
        if node.kind is EntryKind.GROUP:
            made += node.entries
    rest = plan.rebuilt(version=0).root.entries
    made += [each for each in rest if not each.kind.level]
    # What is damaged stays named, because some of it may be readable. It is a difference, too.
    lacking = [(each.first, each.next_offset) for each in plan.told.shortfalls]
    return [
        each
        for each in made
        if each.kind is EntryKind.FRAGMENT
        and not any(f < each.next_offset and each.first_offset < n for f, n in lacking)
    ]


def _pages(context: Context, stream: str, begin: int, end: int) -> Iterator[list[ObjectInfo]]:
    """Pages of LIST from `begin` on, of objects that end at or below `end`."""
    after = list_start(context.prefix, stream, begin) if begin else ""
    stop = list_start(context.prefix, stream, end)
    for page in context.pages(data_prefix(context.prefix, stream), after=after, until=stop):
        yield [row for row in page if _ends_by(row.key, context.prefix, end)]


def _ends_by(key: str, prefix: str, end: int) -> bool:
    try:
        return parse_data_key(key, prefix).next_offset <= end
    except InvalidInputError:
        return False


def _alike(leaf: Entry, other: Entry, trailers: bool) -> bool:
    if trailers:
        return leaf == other
    # LIST knows neither times nor records.
    return leaf == replace(
        other,
        min_timestamp=leaf.min_timestamp,
        max_timestamp=leaf.max_timestamp,
        records=leaf.records,
    )


def _in_short(entry: Entry) -> str:
    return (
        f"{entry.first_offset}..{entry.next_offset} epoch {entry.epoch} uid {entry.uid:016x}"
        f" {entry.size} bytes, {entry.records} records, times {entry.min_timestamp} to"
        f" {entry.max_timestamp}"
    )
