"""Find what nothing refers to, prove it twice a grace time apart, and only then delete it.

One step goes over as much of a stream's listing as time allows and gives a cursor; so a petabyte
takes many steps and no more memory than a page and the candidates on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coldstream.errors import ConflictError, CorruptDataError, InvalidInputError
from coldstream.fragment import (
    HEADER,
    TRAILER_SIZE,
    FragmentIndex,
    Trailer,
    chunk_epoch,
    parse_trailer,
)
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.tree import leaf_at
from coldstream.names import (
    DataKey,
    GroupKey,
    RootKey,
    SightingsKey,
    metadata_prefix,
    parse_data_key,
    parse_metadata_key,
    stream_prefix,
)
from coldstream.plans.collect import (
    Kind,
    Record,
    judge_data,
    judge_group,
    judge_root,
    mature,
    replaced,
)
from coldstream.ports import Deleter, ObjectInfo
from coldstream.usecases.load import World, load
from coldstream.usecases.sightings import list_records, read_record, write_record

_PAGE = 1000
#: Keys in one record; a step ends before it has more.
MAX_CANDIDATES = 100_000

# What a cursor is in: the manifest's nodes, or all the rest.
_NODES, _REST = "nodes", "rest"


@dataclass(slots=True)
class Count:
    """Objects of one kind."""

    objects: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """One object more."""
        self.objects += 1
        self.bytes += size


@dataclass(slots=True)
class Collection:
    """What one step found and did.

    Attributes:
        stream: which one.
        found: objects by kind.
        waiting: garbage that is not proved yet: too young, or seen for the first time.
        provable: in a dry run, garbage that a real run would delete.
        deleted: by kind.
        unique: keys of fragments that hold what the manifest lacks, the first hundred.
        foreign: keys that are not ours, the first hundred.
        cursor: the key behind which the next step goes on, None at the end of the listing.
    """

    stream: str
    found: dict[Kind, Count] = field(default_factory=dict)
    waiting: Count = field(default_factory=Count)
    provable: Count = field(default_factory=Count)
    deleted: dict[Kind, Count] = field(default_factory=dict)
    unique: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    cursor: str | None = None


def collect(
    world: World,
    deleter: Deleter,
    stream: str,
    *,
    grace_ms: int,
    run_ms: int,
    now_ms: int,
    cursor: str | None = None,
    dry_run: bool = False,
    time_left: Callable[[], bool] = lambda: True,
) -> Collection:
    """One step over the stream's objects, from behind `cursor` on.

    Args:
        world: where.
        deleter: the same bucket.
        stream: directory name.
        grace_ms: longer than anybody works with a root that is not the newest.
        run_ms: when the run began, the same for all its steps; ms since the Unix epoch.
        now_ms: now; only for what is said about waiting and for a dry run. What is deleted is
            judged by S3's clock.
        cursor: of the step before.
        dry_run: find and say, but write and delete nothing.
        time_left: whether there is time for another page.

    Raises:
        NotFoundError: no item, or an object of the tree is gone: nothing is deleted.
        ConflictError: the stream is not live, the table is a restored one, or its state changed.
        CorruptDataError: the manifest is damaged: nothing is deleted.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    step = _Step(world, deleter, stream, grace_ms, run_ms, dry_run)
    return step.run(cursor, now_ms, time_left)


_Candidate = tuple[ObjectInfo, Kind]


class _Step:
    def __init__(
        self,
        world: World,
        deleter: Deleter,
        stream: str,
        grace_ms: int,
        run_ms: int,
        dry_run: bool,
    ) -> None:
        self._world = world
        self._deleter = deleter
        self._stream = stream
        self._grace_ms = grace_ms
        self._run_ms = run_ms
        self._dry_run = dry_run
        self._fetch = world.fetch(stream)
        self._loaded = load(world, stream)
        self._revision = self._loaded.item.revision
        self.report = Collection(stream)

    def run(self, cursor: str | None, now_ms: int, time_left: Callable[[], bool]) -> Collection:
        records = list_records(self._world, self._stream)
        old = mature(records, now_ms=now_ms, grace_ms=self._grace_ms)
        seen = self._seen(old)
        candidates: list[_Candidate] = []
        done = {each.path: each for each in replaced(old, now_ms=now_ms, grace_ms=self._grace_ms)}
        for row, following in self._listing(cursor):
            if row is not None:
                kind = Kind.OLD_RECORD if row.key in done else self._judge(row.key)
                self._count(self.report.found, kind, row.size)
                self._name(kind, row.key)
                if kind.garbage:
                    candidates.append((row, kind))
            elif not time_left() or len(candidates) > MAX_CANDIDATES - _PAGE:
                self.report.cursor = following
                break
        self._delete(candidates, seen, now_ms)
        return self.report

    def _listing(self, cursor: str | None) -> Iterator[tuple[ObjectInfo | None, str]]:
        """Every object once, and after each page a place to stop: no row, and the cursor.

        Manifest nodes come first, so that a root goes before the data that only it refers to: a
        root that is left over may be adopted one day, and then must not miss anything.
        """
        nodes = metadata_prefix(self._world.prefix, self._stream)
        everything = stream_prefix(self._world.prefix, self._stream)
        where, _, after = (cursor or f"{_NODES}:").partition(":")
        for phase, prefix in ((_NODES, nodes), (_REST, everything)):
            if where == _REST and phase == _NODES:
                continue
            while True:
                page = self._world.store.list(prefix, start_after=after, limit=_PAGE)
                for row in page:
                    if phase == _NODES or not row.key.startswith(nodes):
                        yield row, ""
                if len(page) < _PAGE:
                    break
                after = page[-1].key
                yield None, f"{phase}:{after}"
            after = ""

    def _seen(self, records: Iterable[Record]) -> dict[str, int]:
        """When each key was seen unreferenced for the first time, by S3's clock."""
        seen: dict[str, int] = {}
        for record in records:
            try:
                sightings = read_record(self._world, self._stream, record.path)
            except CorruptDataError:
                continue  # proves nothing; a later record will
            if sightings.revision != self._revision:
                continue  # there was an adoption, a rebuild or an undelete since
            for key in sightings.keys:
                seen[key] = min(seen.get(key, record.modified_ms), record.modified_ms)
        return seen

    def _delete(
        self, candidates: Sequence[tuple[ObjectInfo, Kind]], seen: dict[str, int], now_ms: int
    ) -> None:
        sightings = [(row, kind) for row, kind in candidates if kind is not Kind.OLD_RECORD]
        if not candidates:
            return
        if self._dry_run:
            for row, _ in sightings:
                sure = row.key in seen and row.modified_ms <= now_ms - self._grace_ms
                (self.report.provable if sure else self.report.waiting).add(row.size)
            return
        # What is seen now is written down first, and the record's own time is S3's now.
        record = write_record(
            self._world,
            self._stream,
            run_ms=self._run_ms,
            revision=self._revision,
            keys=[row.key for row, _ in sightings],
        )
        limit_ms = record.modified_ms - self._grace_ms
        proved = [
            (row, kind)
            for row, kind in candidates
            if row.modified_ms <= limit_ms
            and (kind is Kind.OLD_RECORD or (row.key in seen and seen[row.key] <= limit_ms))
        ]
        certain = {row.key for row, _ in proved}
        for row, _ in sightings:
            if row.key not in certain:
                self.report.waiting.add(row.size)
        nodes = metadata_prefix(self._world.prefix, self._stream)
        for group in (
            [each for each in proved if each[0].key.startswith(nodes)],
            [each for each in proved if not each[0].key.startswith(nodes)],
        ):
            for begin in range(0, len(group), _PAGE):
                self._delete_batch(self._proved_again(group[begin : begin + _PAGE]))

    def _delete_batch(self, batch: Sequence[_Candidate]) -> None:
        gone = set(self._deleter.delete([row.key for row, _ in batch])) if batch else set()
        for row, kind in batch:
            if row.key in gone:
                self._count(self.report.deleted, kind, row.size)

    def _proved_again(self, batch: Sequence[_Candidate]) -> list[_Candidate]:
        """The batch as far as it still is garbage, by an item that was read just now.

        Raises:
            ConflictError: the stream is not live any more, or its state changed and changed back.
        """
        while True:
            fresh = load(self._world, self._stream)
            if fresh.item.revision != self._revision:
                raise ConflictError("the stream's state changed", stream=self._stream)
            if fresh.item.version == self._loaded.item.version:
                return list(batch)
            self._loaded = fresh
            batch = [
                (row, kind)
                for row, kind in batch
                if kind is Kind.OLD_RECORD or self._judge(row.key).garbage
            ]

    def _judge(self, path: str) -> Kind:
        prefix = self._world.prefix
        try:
            key: DataKey | RootKey | GroupKey | SightingsKey = parse_data_key(path, prefix)
        except InvalidInputError:
            try:
                key = parse_metadata_key(path, prefix)
            except InvalidInputError:
                return Kind.FOREIGN
        root, item = self._loaded.root, self._loaded.item
        match key:
            case DataKey():
                leaf = leaf_at(root, key.first_offset, self._fetch)
                return judge_data(key, root, leaf, lambda key: self._holds_last_chunk(key, path))
            case GroupKey():
                return judge_group(key, root, self._fetch)
            case RootKey():
                return judge_root(key, version=item.version, current=path == item.root_key)
            case SightingsKey():
                return Kind.RECORD

    def _holds_last_chunk(self, key: DataKey, path: str) -> bool:
        """Whether the manifest holds the chunk in which a refused fragment ends.

        Same chunk id and epoch in both mean the same history below, so the fragment is a copy. A
        fragment that cannot be read is damaged, not unique; but a damaged object proves nothing
        either, so it counts as not held and stays.
        """
        try:
            last = parse_trailer(self._world.store.get_suffix(path, TRAILER_SIZE))
            leaf = leaf_at(self._loaded.root, last.last_chunk_id, self._fetch)
            if leaf is None or leaf.kind is not EntryKind.FRAGMENT:
                return False
            held = leaf.data_key(self._stream).path(self._world.prefix)
            trailer = parse_trailer(self._world.store.get_suffix(held, TRAILER_SIZE))
            return self._epoch_of(last.last_chunk_id, trailer, held) == last.last_chunk_epoch
        except CorruptDataError:
            return False

    def _epoch_of(self, chunk_id: int, trailer: Trailer, path: str) -> int | None:
        """Epoch of the chunk with this id in a fragment; None if no chunk has this id."""
        begin = trailer.index_position
        section = self._world.store.get(path, begin, begin + trailer.index_size)
        index = FragmentIndex(section, trailer)
        record = index[index.chunk_of_offset(chunk_id)]
        if record.chunk_id != chunk_id:
            return None
        start = len(HEADER) + record.position
        return chunk_epoch(self._world.store.get(path, start, start + 24))

    def _count(self, counts: dict[Kind, Count], kind: Kind, size: int) -> None:
        counts.setdefault(kind, Count()).add(size)

    def _name(self, kind: Kind, key: str) -> None:
        names = {Kind.UNIQUE: self.report.unique, Kind.FOREIGN: self.report.foreign}.get(kind)
        if names is not None and len(names) < 100:
            names.append(key)


def sweep_stragglers(
    world: World, deleter: Deleter, stream: str, *, dry_run: bool = False
) -> Collection:
    """Delete what has arrived below the prefix of a stream that was deleted for good.

    Raises:
        ConflictError: the stream is not deleted, or the table is a restored one.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    report = Collection(stream)
    after = ""
    while True:
        item = world.catalog.get(stream)
        if (
            item is None
            or item.state is not StreamState.DELETED
            or item.table_id != world.catalog.table_id()
        ):
            raise ConflictError("no tombstone of this table", stream=stream)
        rows = world.store.list(stream_prefix(world.prefix, stream), start_after=after, limit=_PAGE)
        if not rows:
            return report
        after = rows[-1].key
        gone = set() if dry_run else set(deleter.delete([row.key for row in rows]))
        for row in rows:
            report.found.setdefault(Kind.STRAGGLER, Count()).add(row.size)
            if row.key in gone:
                report.deleted.setdefault(Kind.STRAGGLER, Count()).add(row.size)
