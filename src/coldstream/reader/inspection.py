"""Look at one fragment as `verify` does: collect everything that is wrong instead of stopping."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat

from coldstream.crc import combine
from coldstream.errors import CorruptDataError, NotFoundError, UnknownVersionError
from coldstream.fragment import Trailer
from coldstream.manifest.entries import Entry
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.ports import ObjectStore
from coldstream.reader.cuts import ranges
from coldstream.reader.fragments import Fragments
from coldstream.reader.open_fragments import OpenFragment
from coldstream.reader.report import CheckedRange, RangeStatus
from coldstream.remote.trailers import read_trailer
from coldstream.soundness.chunks import USER, Checked, contents_faults, counts_of
from coldstream.soundness.trailer import trailer_agrees

#: A fragment with more damaged chunks than this is reported as damaged from there to its end.
_MAX_DAMAGED_CHUNKS = 32


@dataclass(slots=True)
class Inspected:
    """What is known of one entry of the manifest.

    Attributes:
        entry: of a fragment.
        path: key of its object.
        trailer: None if it could not be read.
        violations: everything that is wrong.
        missing: whether the object is gone.
        chunks: that were read.
        messages: that were decoded.
    """

    entry: Entry
    path: str
    trailer: Trailer | None = None
    violations: list[Violation] = field(default_factory=list)
    missing: bool = False
    chunks: int = 0
    messages: int = 0

    def add(self, message: str, first: int | None = None, next_offset: int | None = None) -> None:
        """Note what is wrong with [first, next_offset), by default with the whole fragment."""
        entry = self.entry
        first = entry.first_offset if first is None else first
        next_offset = entry.next_offset if next_offset is None else next_offset
        violation = Violation(Invariant.DURABILITY, message, first, next_offset, self.path)
        self.violations.append(violation)

    def ranges(self) -> list[CheckedRange]:
        """Statuses that tile the fragment."""
        entry = self.entry
        status = RangeStatus.MISSING if self.missing else RangeStatus.CORRUPT
        found: list[CheckedRange] = []
        at = entry.first_offset
        for each in sorted(self.violations, key=_place):
            first, next_offset = _place(each)
            next_offset = min(next_offset, entry.next_offset)
            if next_offset <= at:
                continue
            if first > at:
                found.append(self._range(at, first, RangeStatus.PRESENT))
            found.append(self._range(max(first, at), next_offset, status, each.message))
            at = next_offset
        if at < entry.next_offset:
            found.append(self._range(at, entry.next_offset, RangeStatus.PRESENT))
        return found

    def _range(
        self, first: int, next_offset: int, status: RangeStatus, problem: str = ""
    ) -> CheckedRange:
        return CheckedRange(first, next_offset, status, 1, self.entry.size, self.path, problem)


def _place(violation: Violation) -> tuple[int, int]:
    return violation.first_offset or 0, violation.next_offset or 0


def inspect_trailer(
    entry: Entry,
    *,
    floor: int | None,
    stream: str,
    path: str,
    listed_size: int | None,
    store: ObjectStore,
) -> Inspected:
    """The object is there, has its size, and its trailer agrees with key, manifest and ledger.

    Args:
        entry: of a fragment.
        floor: of its epoch in the ledger, None if the ledger does not have the epoch.
        stream: directory name.
        path: key of the object.
        listed_size: bytes, as LIST says; None if it is not listed.
        store: where it should be.

    Raises:
        UnavailableError, PermissionDeniedError: no answer is no finding.
        UnknownVersionError: a later release wrote it.
    """
    found = Inspected(entry, path)
    if listed_size is None:
        found.missing = True
        found.add("the object is gone")
        return found
    if listed_size != entry.size:
        found.add(f"the object has {listed_size} bytes, the manifest says {entry.size}")
        return found
    try:
        trailer = read_trailer(store, path)
    except NotFoundError:
        found.missing = True
        found.add("the object is gone")
    except CorruptDataError as error:
        found.add(error.reason)
    except UnknownVersionError as error:
        error.located(stream=stream, offset=entry.first_offset)
        raise
    else:
        found.violations += trailer_agrees(trailer, entry, entry.data_key(stream), path, floor)
        found.trailer = trailer
    return found


def inspect_data(found: Inspected, fragments: Fragments, *, range_size: int) -> None:
    """Read the whole fragment: index, every chunk against it, every CRC, every message.

    Args:
        found: of `inspect_trailer`; what is wrong is added to it.
        fragments: where to read.
        range_size: bytes to hold at a time, unless a chunk is larger.
    """
    if found.violations:
        return
    try:
        opened = fragments.open(found.entry)
        crc = _inspect_chunks(found, fragments, opened, range_size)
    except NotFoundError:
        found.missing = True
        found.add("the object is gone")
    except CorruptDataError as error:
        found.add(error.reason)
    else:
        if not found.violations and crc != opened.trailer.data_crc:
            found.add("the CRC of the data section does not match, though that of every chunk does")


def _inspect_chunks(
    found: Inspected, fragments: Fragments, opened: OpenFragment, range_size: int
) -> int:
    """Checks every chunk; the CRC32 of the data, which means something if nothing was wrong."""
    index = opened.index
    crc = 0
    for first, last in ranges(index, 0, len(index) - 1, repeat(range_size)):
        begin = first
        while begin <= last:
            piece = fragments.chunks(opened, begin, last)
            _inspect_contents(found, piece.checked)
            if piece.checked.error is None:
                crc = combine(crc, piece.crc or 0, piece.size)
                break
            # Go on behind the damaged chunk: the index still says where the next one begins.
            damaged = begin + len(piece.checked)
            many = len(found.violations) >= _MAX_DAMAGED_CHUNKS
            next_offset = (
                index[damaged + 1].chunk_id
                if damaged + 1 < len(index) and not many
                else opened.trailer.next_offset
            )
            found.add(piece.checked.error.reason, index[damaged].chunk_id, next_offset)
            if many:
                return crc
            begin = damaged + 1
    return crc


def _inspect_contents(found: Inspected, checked: Checked) -> None:
    """The entries, filters and tracking data of chunks that agree with index and CRC."""
    headers, counts = checked.headers, counts_of(checked)
    found.chunks += len(headers)
    for kind, count in zip(headers["chunk_type"].tolist(), counts, strict=True):
        if kind == USER and isinstance(count, int):
            found.messages += count
    for number, fault in contents_faults(checked, counts):
        first = int(headers["chunk_id"][number])
        found.add(fault.words, first, first + int(headers["records"][number]))
