"""Ranges of a stream as runs of chunks that know where they stood in a broker's files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial

import numpy as np

from coldstream.columns.damage import CorruptRange
from coldstream.errors import ConflictError, LostRangeError
from coldstream.fragment import HEADER, INDEX_HEADER, TRAILER_SIZE
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.root import Root
from coldstream.plans.restore import Run
from coldstream.reader.fetch import Fetch
from coldstream.reader.follow import RangeRead
from coldstream.reader.fragments import FetchedChunks
from coldstream.reader.gap import Gap, GapReason
from coldstream.reader.locate import leaves_between
from coldstream.reader.objects import StreamObjects
from coldstream.reader.open_fragments import OpenFragment
from coldstream.reader.prefetch import in_order, workers

#: Bytes of a fragment that a broker's files have not; an index record of theirs is the longer one.
_BESIDE = len(HEADER) + len(INDEX_HEADER) + TRAILER_SIZE

#: The same words fail for ever, and a directory takes no others.
_IN_ANOTHER = (
    "keep what is there, and copy what is left into another directory, with --to and --from {}"
)


class HistoryChangedError(ConflictError):
    """A claim has cut off, under a higher epoch, what was copied before."""

    why = "history changed"
    remedy = "remove what was copied so far, and run the command again"


def fetched(read: RangeRead, on_gap: Callable[[Gap], None]) -> Generator[FetchedChunks, None, None]:
    """The pieces of a read, in order, every byte checked.

    Args:
        read: a range of a stream.
        on_gap: told of offsets that exist nowhere; of what was copied and then cut off nobody is
            told, it is an error.

    Raises:
        CorruptDataError: damaged bytes; all good chunks before them have been given.
        HistoryChangedError: a claim has cut off what was given before.
        As `StreamReader.chunks`.
    """
    with closing(read.found()) as found:
        for each in found:
            if isinstance(each, Gap):
                if each.reason is GapReason.TRUNCATION:
                    raise HistoryChangedError(str(each), offset=each.first_offset)
                on_gap(each)
            elif isinstance(each, CorruptRange):
                raise each.error
            else:
                if len(each.checked):
                    yield each
                if each.checked.error is not None:
                    raise each.checked.error


def refuse_gap(gap: Gap) -> None:
    """Stop at a gap: a broker's files have none.

    Raises:
        LostRangeError: always.
    """
    raise LostRangeError(
        str(gap), offset=gap.first_offset, remedy=_IN_ANOTHER.format(gap.next_offset)
    )


def refuse_lost(first: int, next_offset: int, stream: str, root: Root) -> None:
    """Say that offsets which were there when a copy began are gone, and how to have the rest.

    Args:
        first: the lowest of them.
        next_offset: behind them.
        stream: directory name.
        root: by which they are gone.

    Raises:
        LostRangeError: always.
    """
    raise LostRangeError(
        f"offsets {first} to {next_offset - 1} are not in the remote tier any more",
        stream=stream,
        offset=first,
        remedy=_IN_ANOTHER.format(max(first, root.first_offset)),
    )


def run_of(piece: FetchedChunks) -> Run:
    """Where the good chunks of a piece stood; it has some."""
    records, trailer = piece.fragment.records, piece.fragment.trailer
    headers, bounds = piece.checked.headers, piece.checked.bounds
    first = int(headers["chunk_id"][0])
    number = int(np.searchsorted(records.chunk_ids, np.uint64(first)))
    return Run(
        first_offset=first,
        next_offset=int(headers["chunk_id"][-1]) + int(headers["records"][-1]),
        segment_offset=trailer.segment_offset,
        position=trailer.segment_position + int(records.positions[number]),
        size=bounds[len(headers)] - bounds[0],
        chunks=len(headers),
    )


def holes(root: Root, first: int, end: int, objects: StreamObjects) -> list[Entry]:
    """The holes that lie in the offsets [first, end), in order."""
    leaves = leaves_between(root, first, end, objects.groups)
    return [leaf for leaf in leaves if leaf.kind is EntryKind.HOLE]


def bytes_within(root: Root, first: int, end: int, objects: StreamObjects) -> int:
    """Bytes that the fragments which lie wholly in the offsets [first, end) take in files at least.

    Of one that a bound cuts only its index says how much is meant; there are two at the most.
    """
    first = max(first, root.first_offset)

    def within(entries: Iterable[Entry]) -> int:
        found = 0
        for each in entries:
            if first <= each.first_offset and each.next_offset <= end:
                # Holes, of which a group does not say how many it has, are taken for fragments.
                found += max(0, each.size - each.fragments * _BESIDE)
            elif each.kind.level and first < each.next_offset and each.first_offset < end:
                found += within(objects.groups(each).entries)
        return found

    return within(root.entries)


def runs(root: Root, first: int, end: int, objects: StreamObjects) -> Iterator[Run]:
    """What a read of the offsets [first, end) would give, by trailers and indexes alone.

    Raises:
        LostRangeError: there is a hole.
        NotFoundError, CorruptDataError: as `Fragments.open`.
    """
    in_flight = objects.settings.at_once
    leaves = leaves_between(root, first, end, objects.groups)
    fetches = (Fetch(0, partial(_opened, leaf, objects)) for leaf in leaves)
    with (
        workers(in_flight) as pool,
        closing(in_order(fetches, pool, budget=objects.budget, in_flight=in_flight)) as opened,
    ):
        for fragment in opened:
            yield _by_index(fragment, first, end)


def _opened(leaf: Entry, objects: StreamObjects) -> OpenFragment:
    if leaf.kind is EntryKind.HOLE:
        refuse_gap(Gap(leaf.first_offset, leaf.next_offset))
    return objects.fragments.open(leaf)


def _by_index(fragment: OpenFragment, first: int, end: int) -> Run:
    index, records, trailer = fragment.index, fragment.records, fragment.trailer
    low, high = index.chunk_of_offset(first), index.chunk_of_offset(end - 1) + 1
    begin, stop = int(records.positions[low]), int(records.positions[high])
    return Run(
        first_offset=int(records.chunk_ids[low]),
        next_offset=int(records.chunk_ids[high]),
        segment_offset=trailer.segment_offset,
        position=trailer.segment_position + begin,
        size=stop - begin,
        chunks=high - low,
    )
