"""Make a stream's manifest anew from the bucket, when its root or its groups are damaged or gone.

The state `rebuilding` comes first: it stops commits, and with them everybody who deletes. Then one
pass over LIST (plans/rebuild.py), groups first, the root, and the item in one conditional write. A
rebuild that dies leaves the state and some orphans; the next one goes on from there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    LostRangeError,
    NotFoundError,
    RefusedFragmentError,
    UnknownOutcomeError,
)
from coldstream.fragment import TRAILER_SIZE, Trailer, parse_trailer
from coldstream.manifest.catalog import CatalogItem, StateChange, StreamState
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root, parse_root
from coldstream.names import (
    RootKey,
    data_prefix,
    group_path,
    metadata_prefix,
    parse_metadata_key,
    root_path,
    stream_prefix,
)
from coldstream.plans.rebuild import Rebuild, Rebuilt, ledger_of_keys
from coldstream.plans.reconcile import ListedRoot, adoption, next_version
from coldstream.plans.resolve import Listed
from coldstream.ports import Landed
from coldstream.usecases.listing import pages
from coldstream.usecases.load import MAX_ROOT_SIZE, World
from coldstream.usecases.quarantine import surviving_record, write_record

_TRAILERS_AT_ONCE = 16
#: Fragments whose trailers do not hold, before a person should look.
_MOST_REFUSED = 100


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild found, and whether it landed.

    Attributes:
        stream: which one.
        landed: whether the item names the new root.
        rebuilt: the result of the pass.
        groups: how many were made.
        root_key: of the newest readable root, "" if there was none: then the ledger was guessed
            from the keys.
        damaged: keys of newer roots that could not be read.
        refused: one error a fragment whose trailer does not hold.
        item: what the table said before, None if it had nothing.
    """

    stream: str
    landed: bool
    rebuilt: Rebuilt
    groups: int
    root_key: str
    damaged: tuple[str, ...]
    refused: tuple[RefusedFragmentError, ...]
    item: CatalogItem | None


def rebuild(
    world: World,
    stream: str,
    *,
    branching: int,
    trailers: bool = True,
    dry_run: bool = True,
) -> RebuildReport:
    """Rebuild the manifest of one stream from its objects.

    Ledger, first offset and the least next offset come from the item, if it is of this table: it
    has them even where the newest root is damaged. Otherwise they come from the newest root that
    can be read; without one the ledger is guessed from the keys, and the first offset is that of
    the first fragment. What would take the manifest back is refused, and the stream stays as it is.

    Args:
        world: where.
        stream: directory name.
        branching: entries of a full group.
        trailers: whether to read and check the trailer of every fragment; without them look-ups by
            time open every fragment, and retention by age takes none.
        dry_run: only say what would come out.

    Raises:
        NotFoundError: the bucket has nothing of this stream.
        InvalidInputError: it is to be committed, but no trailer was to be read.
        ConflictError: the stream is being deleted, or somebody else changed its item.
        LostRangeError: the manifest would end before it does now, or below its end there is a
            gap with acceptable data behind it; nothing was committed.
        CorruptDataError: too many trailers do not hold; nothing was committed.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    if not trailers and not dry_run:
        # A fragment that commits have refused and the good one in its place look alike by keys.
        raise InvalidInputError(
            "a manifest is installed only from fragments whose trailers were read", stream=stream
        )
    item = world.catalog.get(stream)
    if not world.store.list(stream_prefix(world.prefix, stream), limit=1):
        raise NotFoundError("the bucket has nothing of this stream", stream=stream)
    if dry_run:
        return _rebuild(world, stream, item, branching, trailers, dry_run=True)
    item = _stop_others(world, stream, item)
    try:
        return _rebuild(world, stream, item, branching, trailers, dry_run=False)
    except UnknownOutcomeError:
        raise
    except ColdstreamError:
        # Commits and deletes must not stand still because a rebuild could not be done.
        _give_back(world, stream, item)
        raise


def _rebuild(
    world: World,
    stream: str,
    item: CatalogItem | None,
    branching: int,
    trailers: bool,
    *,
    dry_run: bool,
) -> RebuildReport:
    roots = sorted(
        _roots(world, stream),
        key=lambda each: (each.key.version, each.key.epoch, -each.key.uid),
        reverse=True,
    )
    data = data_prefix(world.prefix, stream)
    # The item's own root first: one of the same version that lost the race may say another offset.
    own = item if item and item.root_key and item.table_id == world.catalog.table_id() else None
    first = [own.root_key] if own else []
    paths = [*first, *(each.path for each in roots if each.path not in first)]
    root, root_key, damaged = _newest(world, paths)
    if own is not None:
        ledger, first_offset, least = own.ledger, own.first_offset, own.next_offset
    elif root is not None:
        ledger, first_offset, least = root.ledger, root.first_offset, root.next_offset
    else:
        ledger = ledger_of_keys(pages(world, data), world.prefix, stream)
        first_offset, least = None, None
    refused: dict[str, RefusedFragmentError] = {}
    over_holes = False
    while True:
        plan = Rebuild(
            world.prefix,
            stream,
            ledger,
            branching=branching,
            uids=iter(world.new_uid, None),
            first_offset=first_offset,
            trailers=(lambda listed: _trailers(world, listed)) if trailers else None,
            refused=refused.keys(),
            until=least,
            over_holes=over_holes,
        )
        groups = 0
        try:
            for node in plan.groups(pages(world, data)):
                groups += 1
                if not dry_run:
                    _put_group(world, stream, node)
            short = least is not None and plan.next_offset < least
            if over_holes or not short:
                break
            # A late upload over a hole may have kept the hole out. It stays where it is, and
            # `repair` puts it in place.
            over_holes = True
        except RefusedFragmentError as exc:
            if exc.key is None or exc.key in refused or len(refused) >= _MOST_REFUSED:
                raise CorruptDataError(
                    "too many fragments do not hold; look at them with `coldstream verify`",
                    stream=stream,
                    offset=exc.offset,
                    key=exc.key,
                ) from exc
            refused[exc.key] = exc
    versions = [each.key.version for each in roots]
    rebuilt = plan.rebuilt(version=next_version(item, versions))
    if root is not None:
        rebuilt = replace(rebuilt, root=_with_last_chunk(rebuilt.root, root))
    if not dry_run and (damaged or root is None):
        # The newest root may have named a record that the one before it does not.
        record = surviving_record(world, stream, None if root is None and own is None else ledger)
        key = "" if record.empty else write_record(world, stream, ledger.epoch, record)
        rebuilt = replace(rebuilt, root=replace(rebuilt.root, quarantine_key=key))
    report = RebuildReport(
        stream,
        False,
        rebuilt,
        groups,
        root_key,
        damaged,
        tuple(refused.values()),
        item,
    )
    if dry_run:
        return report
    end = rebuilt.root.next_offset
    if least is not None and end < least:
        raise LostRangeError(
            f"the objects of the bucket reach to offset {end} only, the manifest to {least};"
            " nothing was committed, and the stream stays as it is",
            stream=stream,
            offset=end,
        )
    # Above its end, uploads may be ahead of one another; commits will join them.
    if rebuilt.beyond is not None and (least is None or end < least):
        raise LostRangeError(
            f"offsets {end} to {rebuilt.beyond - 1} are in no acceptable fragment, but data"
            " follows; nothing was committed, and the stream stays as it is",
            stream=stream,
            offset=end,
        )
    _land(world, stream, rebuilt.root, item, versions)
    return replace(report, landed=True)


def _stop_others(world: World, stream: str, item: CatalogItem | None) -> CatalogItem | None:
    """Set the state that stops commits and deleters; an item of another table stops them anyway."""
    if item is None or item.table_id != world.catalog.table_id():
        return item
    if item.state is StreamState.REBUILDING:
        return item
    if item.state is not StreamState.LIVE:
        raise ConflictError(f"the stream is {item.state}", stream=stream)
    outcome = world.catalog.change_state(
        StateChange(
            stream=stream,
            table_id=item.table_id,
            read_revision=item.revision,
            read_state=item.state,
            state=StreamState.REBUILDING,
            uid=world.new_uid() or 1,
        )
    )
    if not isinstance(outcome, Landed):
        raise ConflictError("somebody else changed the stream's state", stream=stream)
    return outcome.item


def _give_back(world: World, stream: str, item: CatalogItem | None) -> None:
    """Let commits go on: the manifest is what it was before."""
    if item is not None and item.state is StreamState.REBUILDING:
        world.catalog.change_state(
            StateChange(
                stream=stream,
                table_id=item.table_id,
                read_revision=item.revision,
                read_state=item.state,
                state=StreamState.LIVE,
                uid=world.new_uid() or 1,
            )
        )


def _newest(world: World, paths: Sequence[str]) -> tuple[Root | None, str, tuple[str, ...]]:
    """The first root that can be read, its key, and the keys of those before it."""
    for number, path in enumerate(paths):
        try:
            return (
                parse_root(world.store.get_all(path, limit=MAX_ROOT_SIZE)),
                path,
                tuple(paths[:number]),
            )
        except (CorruptDataError, NotFoundError):
            continue
    return None, "", tuple(paths)


def _roots(world: World, stream: str) -> Iterator[ListedRoot]:
    """All roots of a stream in the bucket.

    By a LIST of the whole folder from just before the first root: a LIST below a part of a name
    finds nothing in a store that takes prefixes for folders, and a version below that of a root
    which was overlooked would be refused for ever.
    """
    under = metadata_prefix(world.prefix, stream)
    begin = f"{under}root."
    for page in pages(world, under, after=begin[:-1]):
        for row in page:
            if not row.key.startswith(begin):
                if row.key > begin:
                    return
                continue
            try:
                key = parse_metadata_key(row.key, world.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, RootKey):
                yield ListedRoot(key, row.key)


def _trailers(world: World, listed: Sequence[Listed]) -> list[Trailer]:
    def read(each: Listed) -> Trailer:
        try:
            return parse_trailer(world.store.get_suffix(each.path, TRAILER_SIZE))
        except (CorruptDataError, NotFoundError) as exc:
            raise RefusedFragmentError(
                f"fragment refused: {exc.reason}",
                stream=each.data_key.stream,
                offset=each.data_key.first_offset,
                key=each.path,
            ) from exc

    if len(listed) < 2:
        return [read(each) for each in listed]
    with world.pool(min(_TRAILERS_AT_ONCE, len(listed))) as pool:
        return list(pool.map(read, listed))


def _put_group(world: World, stream: str, node: Node) -> None:
    body = node.encode()
    first = node.entries[0].first_offset
    path = group_path(world.prefix, stream, first, node.uid, node.kind)
    world.store.put(path, body, write_id=f"{node.uid:016x}-{zlib.crc32(body):08x}")


def _with_last_chunk(rebuilt: Root, root: Root) -> Root:
    """Keep what the old root remembers and no fragment says: quarantine, and the last chunk."""
    last_chunk = rebuilt.last_chunk
    if last_chunk is None and rebuilt.next_offset == root.next_offset:
        last_chunk = root.last_chunk
    return replace(rebuilt, last_chunk=last_chunk, quarantine_key=root.quarantine_key)


def _land(
    world: World,
    stream: str,
    root: Root,
    item: CatalogItem | None,
    versions: Sequence[int],
) -> None:
    uid = world.new_uid()
    version = next_version(item, versions)
    path = root_path(world.prefix, stream, root.epoch, version, uid)
    root, fresh = adoption(
        root,
        item,
        stream=stream,
        table_id=world.catalog.table_id(),
        versions=versions,
        uid=uid,
        root_key=path,
    )
    data = root.encode()
    if len(data) > MAX_ROOT_SIZE:
        raise InvalidInputError("the branching factor is too small for this stream", stream=stream)
    world.store.put(path, data, write_id=f"{uid:016x}-{zlib.crc32(data):08x}")
    outcome = world.catalog.adopt(fresh, replacing=item)
    if not isinstance(outcome, Landed):
        raise ConflictError("somebody else changed the item; rebuild again", stream=stream)
