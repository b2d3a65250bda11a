"""Bring one bucket of a table of the latest up to date: what a second round of tasks does.

The first round has written the new messages of each bucket into files that no table names. A task
here reads them and the bucket's present files twice: at first keys and offsets only, to learn which
row of each key is the last; then everything, to keep those rows. So a worker holds the keys of one
bucket and no rows. What was deleted leaves no trace: all messages of a stream come in the order of
offsets, so nothing older than a tombstone ever comes after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coldstream.errors import InternalError, InvalidInputError
from coldstream.jobs.materialise.files import ReadableFiles
from coldstream.jobs.materialise.latest.rows import TOMBSTONE, newest
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rows import batches_of, without
from coldstream.jobs.materialise.table import StoredFile, WrittenFile
from coldstream.jobs.materialise.write import FileLayout, TableWriter
from coldstream.jobs.materialise.written import written_from, written_json

#: Rows whose keys are looked at together, at least.
_ROWS_AT_ONCE = 2**20
#: A row group of a new file.
_GROUP_BYTES = 32 * 2**20

#: URL and size of a file.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MergePiece:
    """Work for one task.

    Attributes:
        stream: directory name.
        bucket: of the table.
        present: files of the table that hold it.
        staged: files with its new messages.
        without: offsets whose rows in `present` do not count any more.
    """

    stream: str
    bucket: int
    present: tuple[Place, ...] = ()
    staged: tuple[Place, ...] = ()
    without: Ranges = field(default_factory=Ranges)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a task did.

    Attributes:
        files: that hold the bucket now.
        rows: of new messages, that are in them.
    """

    files: tuple[WrittenFile, ...]
    rows: int


def plan_merge(
    files: Collection[StoredFile],
    staged: Sequence[WrittenFile],
    without: Mapping[str, Ranges],
) -> tuple[MergePiece, ...]:
    """Which buckets have to be written anew, and of what.

    Args:
        files: of the table now.
        staged: that were written for it.
        without: by stream, the offsets whose rows go: they are made anew, or were cut off.

    Raises:
        InvalidInputError: others have deleted rows of such a file, which would come back.
    """
    present: dict[tuple[str, int], list[Place]] = {}
    for file in files:
        present.setdefault(_bucket(file), []).append((file.path, file.size))
    new: dict[tuple[str, int], list[Place]] = {}
    for each in staged:
        new.setdefault(_bucket(each), []).append((each.path, each.size))
    again = {_bucket(file) for file in files if _has_of(file, without)}
    touched = new.keys() | again
    for file in files:
        if file.partly and _bucket(file) in touched:
            raise InvalidInputError(
                "others have deleted rows of this file (DELETE in Athena), which would come back:"
                " have the table compacted first (OPTIMIZE)",
                key=file.path,
            )
    return tuple(
        MergePiece(
            *each,
            tuple(sorted(present.get(each, ()))),
            tuple(sorted(new.get(each, ()))),
            without[each[0]] if each in again else Ranges(),
        )
        for each in sorted(touched)
    )


def _has_of(file: StoredFile, offsets: Mapping[str, Ranges]) -> bool:
    """Whether it may have rows of some offsets, as far as its lowest and highest one tell."""
    span = Ranges.of([(file.first_offset, file.last_offset + 1)])
    return bool(span & offsets.get(_bucket(file)[0], Ranges()))


def _bucket(file: StoredFile | WrittenFile) -> tuple[str, int]:
    if file.time_unit is None or file.stream is None:
        raise InternalError("a file of a table of the latest is in no bucket", key=file.path)
    return file.stream, file.time_unit


def merge(
    piece: MergePiece, layout: FileLayout, files: ReadableFiles, new_id: Callable[[], str]
) -> MergeResult:
    """Do one task.

    Args:
        piece: of work.
        layout: of the table.
        files: have the files that there are, and take new ones.
        new_id: gives a name that is used once.

    Raises:
        InternalError: other rows come out than should; nothing may be committed.
        NotFoundError: a file is gone.
        UnavailableError, PermissionDeniedError: from the store.
    """
    stay = lasting(piece, layout, files)
    taken = 0
    written: list[WrittenFile] = []
    with TableWriter(layout, piece.stream, files, new_id) as writer:
        group: list[pa.RecordBatch] = []
        for batch, is_new in _rows(piece, layout, layout.schema, files):
            kept = batch.filter(_among(batch.column(layout.columns[1]), stay))
            taken += kept.num_rows if is_new else 0
            group.append(kept)
            if sum(each.nbytes for each in group) >= _GROUP_BYTES:
                written += writer.write(_one(group))
                group = []
        if group:
            written += writer.write(_one(group))
        written += writer.close()
    found = sum(each.rows for each in written)
    if found != len(stay):
        raise InternalError(
            f"bucket {piece.bucket} has {found} rows and not {len(stay)}", stream=piece.stream
        )
    return MergeResult(tuple(written), taken)


def lasting(piece: MergePiece, layout: FileLayout, files: ReadableFiles) -> NDArray[np.int64]:
    """Offsets of the rows that stay, in order: the last of each key that is no tombstone.

    Args:
        piece, layout, files: as for `merge`.

    Raises:
        NotFoundError, UnavailableError, PermissionDeniedError: as `merge`.
    """
    assert layout.buckets is not None
    key, offset = layout.buckets.column, layout.columns[1]
    wanted = pa.schema(
        [layout.schema.field(key), layout.schema.field(offset), pa.field(TOMBSTONE, pa.bool_())]
    )
    best = wanted.empty_table()
    pending: list[pa.RecordBatch] = []

    def reduced() -> pa.Table:
        table = pa.concat_tables([best, pa.Table.from_batches(pending, wanted)])
        offsets = newest(table, key, offset)
        return table.filter(pc.is_in(table.column(offset), value_set=offsets)).combine_chunks()

    for batch, _ in _rows(piece, layout, wanted, files):
        pending.append(batch)
        if sum(each.num_rows for each in pending) >= max(_ROWS_AT_ONCE, best.num_rows):
            best, pending = reduced(), []
    best = reduced()
    deleted = pc.fill_null(best.column(TOMBSTONE), False)
    return np.sort(best.filter(pc.invert(deleted)).column(offset).to_numpy())


def _rows(
    piece: MergePiece,
    layout: FileLayout,
    schema: pa.Schema,
    files: ReadableFiles,
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """All rows that count, a row group at a time, and whether they are of new messages."""
    for places, is_new in ((piece.present, False), (piece.staged, True)):
        for path, size in places:
            with files.open(path, size) as content:
                for batch in batches_of(pq.ParquetFile(content), schema):
                    if is_new:
                        yield batch, is_new
                    else:
                        yield without(batch, layout.columns[1], piece.without), is_new


def _among(offsets: pa.Array, stay: NDArray[np.int64]) -> pa.Array:
    if not len(stay):
        return pa.array([False] * len(offsets), pa.bool_())
    values = offsets.to_numpy()
    at = np.minimum(np.searchsorted(stay, values), len(stay) - 1)
    return pa.array(stay[at] == values)


def _one(group: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return group[0] if len(group) == 1 else pa.concat_batches(group)


def encode_merged(result: MergeResult) -> str:
    """As text, for the way from a worker to the driver."""
    return json.dumps({"files": [written_json(each) for each in result.files], "rows": result.rows})


def parse_merged(text: str) -> MergeResult:
    """What `encode_merged` made."""
    document = json.loads(text)
    return MergeResult(tuple(map(written_from, document["files"])), document["rows"])
