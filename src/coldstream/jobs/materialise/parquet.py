"""Tables of plain Parquet files where there is no Iceberg: a log of commits beside the files.

    <location>/data/<stream>/<day=N>/<file>.parquet     as for Iceberg
    <location>/_coldstream/<inverted version>.json      one commit; the newest sorts first

A commit is one object that is created or not (`If-None-Match`), so two runs cannot both make the
next version, and files that no commit names are in no table. Every commit says the whole schema and
which offsets the table has; which files it has is the sum of all commits since the last that names
them all, as every fiftieth does. Readers find the files through the Glue catalog (`Shown`): after
each commit, and before anything else if the last run died between its commit and that.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from coldstream.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.jobs.materialise.files import Files
from coldstream.jobs.materialise.ranges import Ranges
from coldstream.jobs.materialise.rows import batches_of, without
from coldstream.jobs.materialise.rules import Partition
from coldstream.jobs.materialise.schema import grown
from coldstream.jobs.materialise.state import TableState, parse_state
from coldstream.jobs.materialise.table import (
    Append,
    Loaded,
    Outcome,
    StoredFile,
    Versions,
    WrittenFile,
)
from coldstream.jobs.materialise.write import Layout, TableWriter
from coldstream.ports import ObjectStore

VERSION = 1
_MAX_COMMITS = 10**12
_MAX_COMMIT_BYTES = 256 * 2**20
_MAX_FILE_BYTES = 5 * 2**30
_ATTEMPTS = 10
#: Every so many commits one names all files, up to so many: no commit may become too big to read.
_CHECKPOINT = 50
_MAX_CHECKPOINT_FILES = 200_000


@dataclass(frozen=True, slots=True)
class _Handle:
    """What `Loaded.handle` is: the version that was read; 0 before the first."""

    version: int


class Shown(Protocol):
    """What readers are shown of a table: `glue_partitions`. Methods may raise UnavailableError."""

    def version(self) -> int:
        """The commit that they were shown last, as a whole; 0 if none was."""
        ...

    def publish(self, schema: pa.Schema, files: Iterable[StoredFile], version: int) -> None:
        """Show these columns and files, and then remember the version that has them."""
        ...


class ParquetTable:
    """The `Table` port on files and a log.

    Args:
        store: the bucket.
        location: URL of the table, `s3://bucket/path`, without "/" at the end.
        name: `database.table`.
        partition: of its files, by time.
        columns: names of the columns with stream, offset and time.
        files: takes the files that a replacement writes anew.
        new_id: gives a name that is used once.
        shown: told of columns and files after each commit, to show them to readers.
    """

    def __init__(
        self,
        store: ObjectStore,
        location: str,
        name: str,
        *,
        partition: Partition,
        columns: tuple[str, str, str],
        files: Files,
        new_id: Callable[[], str],
        shown: Shown | None = None,
    ) -> None:
        self.name = name
        self._store = store
        self._location = location
        self._log = urlsplit(location).path.removeprefix("/") + "/_coldstream/"
        self._metadata = urlsplit(location).path.removeprefix("/") + "/metadata/"
        self._partition = partition
        self._columns = columns
        self._files = files
        self._new_id = new_id
        self._shown = shown
        self._to_show = shown is not None
        self._first_shown: int | None = None

    def load(self, first_schema: pa.Schema) -> Loaded:
        loaded = self._load(first_schema)
        if self._to_show:
            loaded = self._show(loaded)
        return loaded

    def _load(self, first_schema: pa.Schema) -> Loaded:
        newest = self._store.list(self._log, limit=1)
        if not newest:
            if self._store.list(self._metadata, limit=1):
                raise InvalidInputError(
                    f"the table {self.name} is or was one of Iceberg, at {self._location}: choose"
                    " another name"
                )
            return Loaded(first_schema, TableState(), self._location, frozenset(), _Handle(0))
        document = self._commit(newest[0].key)
        try:
            return Loaded(
                pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"]))),
                parse_state(json.dumps(document["state"]).encode()),
                self._location,
                frozenset(document["recent"]),
                _Handle(_version(newest[0].key)),
            )
        except (KeyError, ValueError, TypeError, pa.ArrowException) as exc:
            raise CorruptDataError(f"a commit is damaged: {exc}", key=newest[0].key) from exc

    def grow(self, loaded: Loaded, schema: pa.Schema) -> Loaded:
        for _ in range(_ATTEMPTS):
            # On what is there now: whoever was quicker has said the type.
            wider = grown(loaded.schema, schema)
            if wider.equals(loaded.schema):
                return loaded
            change = replace(loaded, schema=wider)
            self._put(change, f"grow-{self._new_id()}", loaded.state, (), ())
            loaded = self._load(loaded.schema)
        raise UnavailableError(f"the columns of {self.name} changed all the time")

    def append(self, loaded: Loaded, append: Append) -> Outcome:
        removed = list(append.removes)
        kept: list[WrittenFile] = []
        if removed or append.replaces:
            present = {file.path: file for file in self.files(loaded)}
            if not present.keys() >= set(removed):
                return Outcome.CONFLICT
            for file in self._holding(present, append.replaces):
                removed.append(file.path)
                kept += self._other_rows(loaded, file, append.replaces[file.stream])
        state = loaded.state.with_more(append.covered, append.lost, append.epochs)
        # Also where no answer comes: the next load sees whether there is something to show.
        self._to_show = self._shown is not None
        outcome = self._put(loaded, append.id, state, (*append.files, *kept), removed)
        if outcome is Outcome.LANDED:
            self.load(loaded.schema)
        return outcome

    def _show(self, loaded: Loaded) -> Loaded:
        """Show readers what is committed and they have not seen; up to what others add meanwhile.

        Raises:
            UnavailableError: it cannot be shown now; the next run tries again.
        """
        if self._shown is None:
            return loaded
        seen = self._shown.version()
        for _ in range(_ATTEMPTS):
            if seen == loaded.handle.version:
                break
            if self._first_shown is None:
                self._first_shown = seen + 1
            seen = loaded.handle.version
            self._shown.publish(loaded.schema, self.files(loaded), seen)
            loaded = self._load(loaded.schema)
        self._to_show = False
        return loaded

    def forget(self, loaded: Loaded, before_ms: int, *, dry_run: bool = False) -> Versions | None:
        del dry_run  # the log stays: a late writer must not find the name of an old commit free
        needed = {file.path for file in self.files(self._load(loaded.schema))}
        after = ""
        while page := self._store.list(self._log, start_after=after):
            for row in page:
                if row.modified_ms < before_ms:
                    if _version(row.key) >= (self._first_shown or _MAX_COMMITS):
                        return None  # readers saw it only now: the next run may go on
                    return Versions(0, needed)
                # A query may still read what was part of the table until this commit.
                needed.update(self._commit(row.key)["removed"])
            after = page[-1].key
        return Versions(0, needed)

    def files(self, loaded: Loaded) -> list[StoredFile]:
        found: dict[str, StoredFile] = {}
        removed: set[str] = set()
        for number in range(loaded.handle.version, 0, -1):
            document = self._commit(self._key(number))
            removed |= set(document["removed"])
            for each in document.get("files", document["added"]):
                if each["path"] not in removed:
                    found[each["path"]] = StoredFile(**each)
            if "files" in document:
                break
        return list(found.values())

    def rows(self, loaded: Loaded, path: str) -> Iterator[pa.RecordBatch]:
        data = self._store.get_all(urlsplit(path).path.removeprefix("/"), limit=_MAX_FILE_BYTES)
        yield from batches_of(pq.ParquetFile(pa.BufferReader(data)), loaded.schema)

    def _put(
        self,
        loaded: Loaded,
        commit_id: str,
        state: TableState,
        added: Sequence[WrittenFile],
        removed: Sequence[str],
    ) -> Outcome:
        document: dict[str, Any] = {
            "version": VERSION,
            "id": commit_id,
            "recent": [commit_id, *sorted(loaded.appended)][:1000],
            "schema": base64.b64encode(loaded.schema.serialize().to_pybytes()).decode(),
            "state": json.loads(state.encode()),
            "added": [asdict(self._stored(each)) for each in added],
            "removed": list(removed),
        }
        version = loaded.handle.version + 1
        if version % _CHECKPOINT == 0:
            gone = set(removed)
            files = [asdict(each) for each in self.files(loaded) if each.path not in gone]
            if len(files) <= _MAX_CHECKPOINT_FILES:
                document["files"] = [*files, *document["added"]]
        key = self._key(version)
        try:
            self._store.put(key, json.dumps(document).encode(), write_id=commit_id)
        except AlreadyExistsError:
            return Outcome.CONFLICT
        except UnknownOutcomeError:
            return Outcome.UNKNOWN
        return Outcome.LANDED

    def _stored(self, file: WrittenFile) -> StoredFile:
        metadata = pq.read_metadata(io.BytesIO(file.footer))
        return StoredFile(
            path=file.path,
            size=file.size,
            rows=file.rows,
            stream=file.stream,
            time_unit=file.time_unit,
            first_offset=file.first_offset,
            last_ms=_latest(metadata, self._columns[2]),
        )

    def _holding(
        self, present: Mapping[str, StoredFile], replaces: Mapping[str, Ranges]
    ) -> list[StoredFile]:
        """Files that may hold rows of these offsets; their last offset is not in the log."""
        return [
            file
            for file in present.values()
            if any(file.first_offset < end for _, end in replaces.get(file.stream, Ranges()))
        ]

    def _other_rows(self, loaded: Loaded, file: StoredFile, ranges: Ranges) -> list[WrittenFile]:
        layout = Layout(self._location, loaded.schema, self._partition, self._columns)
        writer = TableWriter(layout, file.stream, self._files, self._new_id)
        written: list[WrittenFile] = []
        for batch in self.rows(loaded, file.path):
            written += writer.write(without(batch, self._columns[1], ranges))
        return [*written, *writer.close()]

    def _key(self, version: int) -> str:
        return f"{self._log}{_MAX_COMMITS - version:012d}.json"

    def _commit(self, key: str) -> Any:
        try:
            document = json.loads(self._store.get_all(key, limit=_MAX_COMMIT_BYTES))
            if document["version"] != VERSION:
                raise CorruptDataError(f"commit version {document['version']} is not known")
            removed = document["removed"]
            if type(removed) is not list or not all(type(each) is str for each in removed):
                # What it took away, a sweep must keep for a while: nothing may be guessed here.
                raise CorruptDataError("a commit does not say which files it took away")
        except (ValueError, KeyError, TypeError) as exc:
            raise CorruptDataError(f"a commit cannot be read: {exc}", key=key) from exc
        except CorruptDataError as exc:
            raise exc.located(key=key) from exc.__cause__
        return document


def _version(key: str) -> int:
    name = key.rpartition("/")[2].removesuffix(".json")
    if len(name) != 12 or not name.isdecimal():
        raise CorruptDataError("this is no name of a commit", key=key)
    return _MAX_COMMITS - int(name)


def _latest(metadata: pq.FileMetaData, column: str) -> int | None:
    """The highest time in a file, from its statistics, ms."""
    names = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
    at = names.index(column)
    highest = None
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(at).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        value = pa.scalar(statistics.max, pa.timestamp("us", "UTC")).value // 1000
        highest = value if highest is None else max(highest, value)
    return highest
