"""Iceberg tables without a JVM: workers write Parquet, this module commits metadata by pyiceberg.

Three habits of pyiceberg would break the promise of `table`, and are switched off here:

  * it repeats a refused append on the new metadata by itself, so a stale writer's rows would get
    in: tables have `commit.retry.num-retries` = 0, and that is checked before every commit;
  * it deletes the manifests of a commit that failed, although an SDK may have repeated a commit
    that landed: our file access never deletes (`KeepingFileIO`); what it leaves stays;
  * a commit without a new snapshot is not tied to the snapshot it was made from: every append makes
    a snapshot, also one without files.

The offsets that a table holds are in a state object (`state`); each snapshot's summary names it
(`iceberg_state`) and says which append made it and how far each stream came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as IcebergMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.catalog_answers import answers, meaning
from coldstream.jobs.materialise.iceberg.data_files import data_file, stored_file
from coldstream.jobs.materialise.iceberg.deletes import deleted_positions, partly_deleted
from coldstream.jobs.materialise.iceberg.metadata_io import KeepingFileIO
from coldstream.jobs.materialise.iceberg.new_table import RETRIES, create
from coldstream.jobs.materialise.iceberg.shape import Shape, check_shape, shaped
from coldstream.jobs.materialise.iceberg.state_object import (
    APPEND_PROPERTY,
    OWN_PLACE,
    STATE_PROPERTY,
    Pointer,
    StatePlace,
    find_pointer,
    history,
    note,
    read_state,
    standing,
    summary_of,
    write_state,
)
from coldstream.jobs.materialise.iceberg.versions import forgettable, referenced, unchanged
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rows import batches_of, holds, kept_of, without_of
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.schema import grown, small
from coldstream.jobs.materialise.table import (
    Append,
    AppendOutcome,
    Loaded,
    StoredFile,
    Versions,
    WrittenFile,
)
from coldstream.jobs.materialise.write import TableWriter
from coldstream.names import check_stream

_GROW_ATTEMPTS = 10


FILE_IO = f"{KeepingFileIO.__module__}.{KeepingFileIO.__qualname__}"


class IcebergTable:
    """The `Table` port on an Iceberg table.

    Args:
        catalog: where it is registered; its property `py-io-impl` is `FILE_IO`.
        name: `database.table`.
        location: URL that the place of a new table's files begins with, without "/" at the end; the
            rest of it is new. None where the catalog gives the place.
        partition: of its files, by time.
        columns: names of the columns with stream, offset and time.
        files: takes the files that a replacement writes anew.
        new_id: gives a name that is used once.
        states: where state objects lie.
        buckets: of its files, in the place of `partition`.
        shared: whether its streams share files; a table of files by stream becomes such a one.
        order: names of columns by which the rows of a file are sorted before stream and offset.
    """

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        *,
        location: str | None,
        partition: TablePartition,
        columns: tuple[str, str, str],
        files: Files,
        new_id: Callable[[], str],
        states: StatePlace = OWN_PLACE,
        buckets: Buckets | None = None,
        shared: bool = False,
        order: tuple[str, ...] = (),
    ) -> None:
        if catalog.properties.get("py-io-impl") != FILE_IO:
            raise InvalidInputError("the Iceberg catalog has no KeepingFileIO")
        self.name = name
        self._catalog = catalog
        self._new_location = location
        self._shape = Shape(partition, columns, buckets, shared, order)
        self._stream, self._offset, self._time = columns
        self._files = files
        self._new_id = new_id
        self._states = states
        self._seen: int | None = None
        self._uuid: UUID | None = None
        self._deleted: tuple[int | None, Mapping[str, FileScanTask]] | None = None

    def load(self, first_schema: pa.Schema) -> Loaded:
        with answers(self.name):
            try:
                table = self._catalog.load_table(self.name)
            except NoSuchTableError:
                table = self._create(first_schema)
            return self._loaded(table)

    def peek(self) -> Loaded | None:
        with answers(self.name):
            try:
                table = self._catalog.load_table(self.name)
            except NoSuchTableError:
                return None
            self._check_ours(table)
            return self._as_loaded(table, find_pointer(self.name, table.metadata))

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        with answers(self.name):
            return self._grown(loaded, schema)

    def _grown(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        for _ in range(_GROW_ATTEMPTS):
            table: IcebergMetadata = loaded.handle
            # Whoever was quicker has said the type: pyiceberg would widen it, or raise.
            wider = grown(loaded.schema, schema)
            if wider.equals(loaded.schema):
                return loaded
            try:
                with table.update_schema() as update:
                    update.union_by_name(wider)
            except CommitFailedException:
                loaded = self._loaded(self._catalog.load_table(self.name))
                continue
            return self._loaded(self._catalog.load_table(self.name))
        raise UnavailableError(f"the columns of {self.name} changed all the time")

    def append(self, loaded: Loaded, append: Append) -> AppendOutcome:
        table: IcebergMetadata = loaded.handle
        state = append.on(loaded.state)
        pointer = find_pointer(self.name, table.metadata).url
        if state != loaded.state or pointer is None:
            # A name of its own for each attempt: what the table has may have grown since the last.
            pointer = f"{self._states.below(table)}/state-{append.id}-{self._new_id()}.json"
            write_state(self.name, self._states.io_of(table), pointer, state)
        summary = {STATE_PROPERTY: pointer, **summary_of(append, state)}
        try:
            with table.transaction() as change:
                update = change.update_snapshot(snapshot_properties=summary)
                removed, kept = self._replaced(loaded, append.replaces, append.removes)
                removed += self._named(loaded, append.removes)
                with update.overwrite() if removed else update.merge_append() as files:
                    for old in removed:
                        files.delete_data_file(old)
                    order = self._shape.order_id(table.metadata)
                    for new in (*append.files, *kept):
                        files.append_data_file(data_file(table, new, order))
                noted = note(files.snapshot_id, pointer)
                said = {APPEND_PROPERTY: append.id, STATE_PROPERTY: pointer}
                change.set_properties({**said, **noted})
        except (CommitFailedException, ValidationException):
            return AppendOutcome.CONFLICT
        except Exception as error:
            known = meaning(error, self.name)
            if isinstance(known, UnavailableError):
                words = f"nobody knows whether a change landed: {known.reason}"
                raise UnknownOutcomeError(words) from error
            if known is None or known is error:
                raise
            raise known from error
        self._seen = files.snapshot_id  # it may be undone before anybody looks again
        return AppendOutcome.LANDED

    def _replaced(
        self, loaded: Loaded, replaces: Mapping[str, Ranges], removes: Collection[str]
    ) -> tuple[list[DataFile], list[WrittenFile]]:
        """Files that hold rows to be replaced, and new files with their other rows.

        Args:
            loaded: the table.
            replaces: offsets by stream.
            removes: paths of files that go anyway.
        """
        table: IcebergMetadata = loaded.handle
        found: dict[str, tuple[DataFile, dict[str, Ranges]]] = {}
        for stream, ranges in replaces.items():
            if not ranges:
                continue
            for task in table.scan(row_filter=self._within(stream, ranges)).plan_files():
                _, gone = found.setdefault(task.file.file_path, (task.file, {}))
                gone[stream] = ranges
        removed: list[DataFile] = []
        kept: list[WrittenFile] = []
        for path, (file, gone) in found.items():
            # Where files are by key, or shared, each spans nearly all offsets.
            if path not in removes and self._holds(table, path, gone):
                removed.append(file)
                kept += self._other_rows(loaded, file, gone)
        return removed, kept

    def _holds(self, table: IcebergMetadata, path: str, gone: Mapping[str, Ranges]) -> bool:
        with table.io.new_input(path).open() as source:
            return holds(pq.ParquetFile(source), self._stream, self._offset, gone)

    def forget(self, loaded: Loaded, before_ms: int, *, dry_run: bool = False) -> Versions | None:
        with answers(self.name):
            return self._forgotten(loaded, before_ms, dry_run)

    def _forgotten(self, loaded: Loaded, before_ms: int, dry_run: bool) -> Versions | None:
        before: IcebergMetadata = loaded.handle
        # A state that is known by an ancestor only would be forgotten with it.
        known = find_pointer(self.name, before.metadata).own
        gone = forgettable(before.metadata, before_ms) if known else frozenset()
        needed = self._referenced(before, gone)
        if gone and not dry_run:
            same = unchanged(self._catalog, before.metadata)
            removal = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(gone)})
            try:
                self._catalog.commit_table(before, same, (removal,))
            except CommitFailedException:
                return None
        now = self._catalog.load_table(self.name)
        seen = {each.snapshot_id for each in before.metadata.snapshots}
        needed |= {before.metadata_location, now.metadata_location}
        return Versions(len(gone), needed | self._referenced(now, seen))

    def _referenced(self, table: IcebergMetadata, skipped: Collection[int]) -> set[str]:
        try:
            return set(referenced(table.metadata, table.io, skipped))
        except FileNotFoundError as exc:
            raise CorruptDataError(f"a manifest of {self.name} is gone: {exc}") from exc

    def files(self, loaded: Loaded) -> list[StoredFile]:
        with answers(self.name):
            return self._stored(loaded.handle)

    def _stored(self, table: IcebergMetadata) -> list[StoredFile]:
        ids = table.schema().find_field
        columns = [ids(name).field_id for name in (self._stream, self._offset, self._time)]
        specs = table.specs()
        return [stored_file(task, specs, *columns) for task in table.scan().plan_files()]

    def count(self, loaded: Loaded, stream: str, ranges: Ranges) -> int:
        if not ranges:
            return 0
        table: IcebergMetadata = loaded.handle
        with answers(self.name):
            scan = table.scan(self._within(stream, ranges), (self._stream, self._offset))
            return int(scan.to_arrow().num_rows)

    def rows(self, loaded: Loaded, path: str) -> Iterator[pa.RecordBatch]:
        table: IcebergMetadata = loaded.handle
        at = table.metadata.current_snapshot_id
        if self._deleted is None or self._deleted[0] != at:
            self._deleted = at, partly_deleted(table)
        with table.io.new_input(path).open() as source:
            found = batches_of(pq.ParquetFile(source), loaded.schema)
            yield from kept_of(found, deleted_positions(table, self._deleted[1].get(path)))

    def _named(self, loaded: Loaded, paths: Sequence[str]) -> list[DataFile]:
        if not paths:
            return []
        wanted = set(paths)
        files = [task.file for task in loaded.handle.scan().plan_files()]
        found = [file for file in files if file.file_path in wanted]
        if len(found) != len(wanted):
            raise ValidationException("a file that was to be replaced is gone")
        return found

    def _within(self, stream: str, ranges: Ranges) -> str:
        """A filter; a stream's name has no character that means something in one."""
        spans = (
            f"({self._offset} >= {first} and {self._offset} < {next_offset})"
            for first, next_offset in ranges
        )
        return f"{self._stream} == '{check_stream(stream)}' and ({' or '.join(spans)})"

    def _other_rows(
        self, loaded: Loaded, file: DataFile, gone: Mapping[str, Ranges]
    ) -> list[WrittenFile]:
        layout = self._shape.layout(loaded)
        writer = TableWriter(layout, next(iter(gone)), self._files, self._new_id)
        written: list[WrittenFile] = []
        for batch in self.rows(loaded, file.file_path):
            written += writer.write(without_of(batch, self._stream, self._offset, gone))
        return [*written, *writer.close()]

    def _create(self, schema: pa.Schema) -> IcebergMetadata:
        try:
            return self._created(schema)
        except NoSuchNamespaceError:
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(self.name.partition(".")[0])
            return self._created(schema)

    def _created(self, schema: pa.Schema) -> IcebergMetadata:
        # Never a place that another table has, or had: its files are not ours to delete.
        location = self._new_location and f"{self._new_location}-{self._new_id()}"
        create(self._catalog, self.name, schema, location, self._shape)
        return self._catalog.load_table(self.name)

    def _check_ours(self, table: IcebergMetadata) -> None:
        if not isinstance(table.io, KeepingFileIO):
            raise InvalidInputError(f"the catalog or {self.name} itself asks for other file access")
        check_shape(self.name, table.metadata, self._shape)

    def _loaded(self, table: IcebergMetadata) -> Loaded:
        self._check_ours(table)
        table = shaped(self._catalog, self.name, table, self._shape)
        if table.metadata.properties.get(RETRIES) != "0":
            with table.transaction() as change:
                change.set_properties({RETRIES: "0"})
            table = self._catalog.load_table(self.name)
        self._check_not_set_back(table)
        pointer = find_pointer(self.name, table.metadata)
        if not pointer.own:
            self._note(table, pointer)
            # Others may have changed it meanwhile: state and snapshot must be of one moment.
            table = self._catalog.load_table(self.name)
            pointer = find_pointer(self.name, table.metadata)
        return self._as_loaded(table, pointer)

    def _as_loaded(self, table: IcebergMetadata, pointer: Pointer) -> Loaded:
        return Loaded(
            schema=pa.schema([small(field) for field in schema_to_pyarrow(table.schema())]),
            state=read_state(self._states.io_of(table), pointer),
            location=table.location().rstrip("/"),
            appended=standing(table.metadata, APPEND_PROPERTY),
            handle=table,
        )

    def _check_not_set_back(self, table: IcebergMetadata) -> None:
        """What was planned on a snapshot that is undone leaves a hole on the one before it."""
        uuid, self._uuid = self._uuid, table.metadata.table_uuid
        if uuid not in (None, self._uuid):
            raise ConflictError(f"the table {self.name} was dropped and made again: run again")
        seen, self._seen = self._seen, table.metadata.current_snapshot_id
        if seen is not None and all(each.snapshot_id != seen for each in history(table.metadata)):
            raise ConflictError(
                f"the table {self.name} was set back to another snapshot while it was being filled:"
                " run again"
            )

    def _note(self, table: IcebergMetadata, pointer: Pointer) -> None:
        """Say what the current snapshot has, before those that say it expire; if it fails, later.

        It stays true whatever happens meanwhile: it is about this snapshot, not about the table.
        """
        current = table.metadata.current_snapshot_id
        if pointer.url is not None and current is not None:
            with suppress(Exception), table.transaction() as change:
                change.set_properties(note(current, pointer.url))
