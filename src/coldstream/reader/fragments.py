"""One fragment of the remote tier: its index by one suffix range, its chunks by ranges.

Everything fetched is checked before it is handed on: the trailer against key, size and manifest
entry; the index against the trailer; every chunk against the index. Errors name stream, offset and
key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from coldstream.columns.damage import CorruptRange
from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    Buffer,
    FragmentIndex,
    Trailer,
    parse_trailer,
)
from coldstream.manifest.entries import Entry
from coldstream.names import DataKey
from coldstream.osiris.chunk import CHUNK_HEADER_SIZE, parse_chunk_header
from coldstream.ports import Doubted, ObjectStore
from coldstream.read_policy import ReadPolicy
from coldstream.reader.open_fragments import OpenFragment, OpenFragments
from coldstream.reader.settings import ReaderSettings
from coldstream.soundness.chunks import USER, Checked, Records, check_chunks
from coldstream.soundness.trailer import MAX_TIMESTAMP, MIN_TIMESTAMP, differences

F = TypeVar("F")

_TAIL_WINDOW = 256 * 2**10


@dataclass(frozen=True, slots=True)
class FetchedChunks:
    """Chunks `first` to `last` (included) of a fragment, fetched and checked.

    Attributes:
        fragment: where they are from.
        first: number of the first chunk.
        last: number of the last chunk.
        checked: the chunks, and the first error.
        crc: CRC32 over their bytes, None if there is an error.
        size: bytes of data.
        whole_refused: every chunk holds by itself, but not the CRC over the fragment's data.
    """

    fragment: OpenFragment
    first: int
    last: int
    checked: Checked
    crc: int | None
    size: int
    whole_refused: bool = False

    @property
    def next_offset(self) -> int:
        """After the last chunk that was fetched."""
        return int(self.fragment.records.chunk_ids[self.last + 1])

    def sound_and_damaged(self, start: int) -> Iterator[Checked | CorruptRange]:
        """The chunks that reach above offset `start`, in order, with what is damaged between them.

        Where there is damage, every chunk is looked at by itself: one says nothing about the next.
        """
        error = self.checked.error
        if error is None:
            yield self.checked
            return
        records, base = self.fragment.records, self.fragment.records.positions[self.first]
        for number in range(self.first, self.last + 1):
            first, next_offset = (int(each) for each in records.chunk_ids[number : number + 2])
            if next_offset <= start:
                continue
            begin, end = (int(each - base) for each in records.positions[number : number + 2])
            alone = check_chunks(self.checked.data[begin:end], records, number, number)
            if self.whole_refused or alone.error is not None:
                why = error if alone.error is None else alone.error
                why.located(stream=self.fragment.key.stream, offset=first, key=self.fragment.path)
                yield CorruptRange(first, next_offset, int(records.timestamps[number]), why)
            else:
                yield alone


class Fragments:
    """Fetches fragments of one stream; safe between threads.

    Args:
        store: where they are.
        prefix: of all keys.
        stream: directory name.
        settings: sizes of ranges.
        opened: those that are kept, shared with other streams of the store; its own by default.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        stream: str,
        settings: ReaderSettings,
        opened: OpenFragments | None = None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._stream = stream
        self._settings = settings
        self._afresh = settings.policy is ReadPolicy.FORCE
        self._kept = OpenFragments() if opened is None else opened
        # Asked once: of a protocol the question takes as long as checking a chunk.
        self._doubted = store if isinstance(store, Doubted) else None

    def path(self, entry: Entry) -> str:
        """The key under which the object of `entry` lies."""
        return entry.data_key(self._stream).path(self._prefix)

    def open(self, entry: Entry) -> OpenFragment:
        """Trailer and index of a fragment: one GET, two where there are very many chunks.

        Raises:
            NotFoundError: the object is gone.
            CorruptDataError: trailer or index are damaged, or not what the manifest says.
        """
        path = self.path(entry)
        known = None if self._afresh else self._kept.get(path)
        if known is not None:
            return known
        opened = self._sure(path, lambda: self._opened(entry))
        self._kept.put(opened)
        return opened

    def doubt(self, path: str) -> None:
        """What was read of an object does not hold: nothing that is kept of it is used again."""
        if self._doubted is not None:
            self._doubted.doubt(path)

    def _sure(self, path: str, read: Callable[[], F]) -> F:
        """What is read; once more from the bucket itself, if it does not hold and was kept."""
        if self._doubted is None:
            return read()
        try:
            found = read()
        except CorruptDataError:
            found = None
        if found is None or (isinstance(found, FetchedChunks) and found.checked.error is not None):
            self._doubted.doubt(path)
            return read()
        return found

    def _opened(self, entry: Entry) -> OpenFragment:
        key, path = entry.data_key(self._stream), self.path(entry)
        try:
            guess = max(self._settings.index_guess, TRAILER_SIZE)
            suffix = self._store.get_suffix(path, min(guess, entry.size))
            trailer = checked_trailer(suffix, entry, key)
            missing = trailer.index_size + TRAILER_SIZE - len(suffix)
            if missing > 0:
                at = trailer.index_position
                section = bytes(self._store.get(path, at, at + trailer.index_size))
            else:
                section = suffix[-missing : len(suffix) - TRAILER_SIZE]
            return _opened(key, path, section, trailer)
        except ColdstreamError as error:
            error.located(stream=self._stream, offset=entry.first_offset, key=path)
            raise

    def whole(self, entry: Entry, start: int, end: int) -> FetchedChunks:
        """A small fragment by one GET, every byte of it checked.

        Args:
            entry: of a fragment.
            start: chunks wholly below this offset are left out,
            end: and chunks that begin at or above this one.

        Raises:
            NotFoundError, CorruptDataError: as `open`; of a chunk the error is in the piece.
        """
        return self._sure(self.path(entry), lambda: self._whole(entry, start, end))

    def _whole(self, entry: Entry, start: int, end: int) -> FetchedChunks:
        key, path = entry.data_key(self._stream), self.path(entry)
        try:
            data = memoryview(self._store.get(path, 0, entry.size))
            trailer = checked_trailer(data, entry, key)
            _check_header(data)
            at = trailer.index_position
            fragment = _opened(key, path, data[at : at + trailer.index_size], trailer)
        except ColdstreamError as error:
            error.located(stream=self._stream, offset=entry.first_offset, key=path)
            raise
        last = trailer.chunks - 1
        piece = self._piece(fragment, 0, last, data[len(HEADER) : at])
        if start <= entry.first_offset and entry.next_offset <= end:
            return piece
        low, high = (fragment.index.chunk_of_offset(each) for each in (start, end - 1))
        if piece.checked.error is not None and len(piece.checked) < low:
            # A damaged chunk says nothing about those behind it, and nobody has asked for it.
            begin, until = fragment.index.data_range(low, high)
            return self._piece(fragment, low, high, data[begin:until])
        return replace(piece, checked=piece.checked.part(low, high))

    def chunks(self, fragment: OpenFragment, first: int, last: int) -> FetchedChunks:
        """Chunks `first` to `last` (included) of a fragment by one GET.

        Raises:
            NotFoundError: the object is gone.
            CorruptDataError: it ends too early or begins with something else; of a chunk the error
                is in the piece.
        """
        return self._sure(fragment.path, lambda: self._chunks(fragment, first, last))

    def _chunks(self, fragment: OpenFragment, first: int, last: int) -> FetchedChunks:
        start, end = fragment.index.data_range(first, last)
        lead = len(HEADER) if first == 0 else 0
        try:
            data = memoryview(self._store.get(fragment.path, start - lead, end))
            if lead:
                _check_header(data)
        except ColdstreamError as error:
            self._locate(error, fragment, first)
            raise
        return self._piece(fragment, first, last, data[lead:])

    def last_user_chunk(self, fragment: OpenFragment) -> int | None:
        """Number of the last chunk that holds messages; None if all hold tracking data.

        Reads the last header first, which nearly always is enough, then headers backwards.
        """
        index, number, window = fragment.index, len(fragment.index) - 1, 1
        while number >= 0:
            lowest = max(0, index.chunk_at_position(index[number].position - window))
            start = index.data_range(lowest, lowest)[0]
            end = index.data_range(number, number)[0] + CHUNK_HEADER_SIZE
            data = memoryview(self._store.get(fragment.path, start, end))
            base = index[lowest].position
            for each in range(number, lowest - 1, -1):
                try:
                    header = parse_chunk_header(data, index[each].position - base)
                except CorruptDataError as error:
                    self._locate(error, fragment, each)
                    raise
                if header.chunk_type == USER:
                    return each
            number, window = lowest - 1, _TAIL_WINDOW
        return None

    def _piece(
        self, fragment: OpenFragment, first: int, last: int, data: memoryview
    ) -> FetchedChunks:
        checked = check_chunks(data, fragment.records, first, last)
        if checked.error is not None:
            self._locate(checked.error, fragment, first)
        return FetchedChunks(fragment, first, last, checked, checked.crc, len(data))

    def _locate(self, error: ColdstreamError, fragment: OpenFragment, number: int) -> None:
        """Say where, as far as the error does not know yet."""
        offset = fragment.index[number].chunk_id
        error.located(stream=self._stream, offset=offset, key=fragment.path)


def checked_trailer(suffix: bytes | memoryview, entry: Entry, key: DataKey) -> Trailer:
    """The trailer at the end of `suffix`, which must say what key and manifest entry say.

    Raises:
        CorruptDataError: it is damaged, or of another fragment.
    """
    trailer = parse_trailer(suffix)
    for each in differences(trailer, key, entry, None):
        # A wrong time in the manifest is for `verify` to tell: the messages can be read.
        if each.field not in (MIN_TIMESTAMP, MAX_TIMESTAMP):
            raise CorruptDataError(each.words)
    return trailer


def _opened(key: DataKey, path: str, section: Buffer, trailer: Trailer) -> OpenFragment:
    index = FragmentIndex(section, trailer)
    return OpenFragment(key, path, index, Records.of(section, index))


def _check_header(data: memoryview) -> None:
    if bytes(data[: len(HEADER)]) != HEADER:
        raise CorruptDataError(f"a fragment begins with {HEADER!r}")
