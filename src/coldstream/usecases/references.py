"""What roots refer to: whether it is all there, and which roots beside the current one matter.

After the loss of the table the newest root of the bucket becomes the current one, also one that
never landed. So such a root holds what it refers to as the current one does: `adopt` takes none
that misses anything, and `collect` deletes nothing that one of them names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from coldstream.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
)
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.quarantine import Timeline
from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, nodes
from coldstream.names import (
    RootKey,
    data_prefix,
    list_start,
    metadata_prefix,
    parse_metadata_key,
)
from coldstream.plans.reconcile import ListedRoot
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import RootCache, root_at
from coldstream.usecases.quarantine import load_cut_root, load_record

_FRAGMENTS_AT_ONCE = 1000
_AT_ONCE = 16
_SPANS_AT_ONCE = 256
#: Roots beside the current one that are read; with more of them nobody looks who refers to what.
MAX_RIVALS = 32


def list_roots(context: Context, stream: str) -> Iterator[ListedRoot]:
    """All roots of a stream in the bucket, in the order of their keys.

    By a LIST of the whole folder from just before the first root: a LIST below a part of a name
    finds nothing in a store that takes prefixes for folders, and a version below that of a root
    which was overlooked would be refused for ever.
    """
    under = metadata_prefix(context.prefix, stream)
    begin = f"{under}root."
    for page in context.pages(under, after=begin[:-1]):
        for row in page:
            if not row.key.startswith(begin):
                if row.key > begin:
                    return
                continue
            try:
                key = parse_metadata_key(row.key, context.prefix)
            except InvalidInputError:
                continue
            if isinstance(key, RootKey):
                yield ListedRoot(key, row.key)


def list_roots_from(
    context: Context, stream: str, version: int, *, time_left: Callable[[], bool] = lambda: True
) -> Iterator[ListedRoot | None]:
    """The roots of a version and of those above it, by epoch and version.

    Roots sort by epoch first. So each epoch's older ones are passed over by a LIST that begins
    behind them: a stream that commits every second has a hundred thousand of these. The last is
    None where there was no time left for another page.
    """
    under = f"{metadata_prefix(context.prefix, stream)}root."
    after = ""
    while True:
        page = context.store.list(under, start_after=after, limit=context.page_size)
        for row in page:
            try:
                key = parse_metadata_key(row.key, context.prefix)
            except InvalidInputError:
                continue
            if not isinstance(key, RootKey):
                continue
            if key.version >= version:
                yield ListedRoot(key, row.key)
            else:
                after = max(after, f"{under}{key.epoch:010d}.{version:012d}")
        if len(page) < context.page_size:
            return
        after = max(after, page[-1].key)
        if not time_left():
            yield None
            return


def rivals(
    context: Context, item: CatalogItem, *, time_left: Callable[[], bool] = lambda: True
) -> list[Root] | None:
    """The roots that an adoption may take instead of the item's own; None if nobody knows them all.

    These are the roots of its version that lost, and those above it, which may land yet or never
    did. One that cannot be read is none: nobody adopts it. With more of them than `MAX_RIVALS`, or
    without the time to list them, nobody knows them all.
    """
    paths: list[str] = []
    for each in list_roots_from(context, item.stream, item.version, time_left=time_left):
        if each is None or len(paths) == MAX_RIVALS + 1:
            return None
        if each.path != item.root_key:
            paths.append(each.path)
    if len(paths) > MAX_RIVALS:
        return None
    found: list[Root] = []
    for path in paths:
        try:
            found.append(root_at(context.store, path, item.stream))
        except (CorruptDataError, NotFoundError):
            continue
    return found


def first_missing(context: Context, stream: str, root: Root) -> str | None:
    """Key of an object that `root` refers to and the bucket lacks; None if all are there.

    Every group is read and every fragment is listed, with many requests at once: a petabyte takes
    minutes. So it is with what its quarantine record names.

    Raises:
        CorruptDataError: a group, the quarantine record or a root that it names is damaged.
        UnavailableError: S3 did not answer.
    """
    # Not the process's own cache: what is in it need not be in the bucket any more.
    context = replace(context, nodes=NodeCache(), roots=RootCache())
    try:
        record = load_record(context, stream, root.quarantine_key)
        gone = missing_of_tree(context, stream, root, root.first_offset)
        for timeline in record.timelines:
            if gone is not None:
                return gone
            gone = _missing_of_timeline(context, stream, timeline)
    except NotFoundError as exc:
        return exc.key or ""
    return gone


def _missing_of_timeline(context: Context, stream: str, timeline: Timeline) -> str | None:
    keys = [row.key for row in timeline.listed]
    with context.pool(_AT_ONCE) as pool:
        for key, found in zip(
            keys, pool.map(lambda each: _is_there(context, each), keys), strict=True
        ):
            if not found:
                return key
    root = load_cut_root(context, stream, timeline)
    if root is None:
        return None
    return missing_of_tree(context, stream, root, max(root.first_offset, timeline.floor))


def missing_of_tree(context: Context, stream: str, root: Root, first_offset: int) -> str | None:
    """Key of an object that a tree refers to above `first_offset` and the bucket lacks, or None.

    Raises:
        NotFoundError, CorruptDataError: a group is gone or damaged.
        UnavailableError: S3 did not answer.
    """
    fetch = context.fetch(stream)
    spans = _spans(root, fetch, first_offset)
    with context.pool(_AT_ONCE) as pool:
        while batch := list(islice(spans, _SPANS_AT_ONCE)):
            tasks = pool.map(
                lambda span: _missing(context, stream, first_offset, span, fetch), batch
            )
            for gone in tasks:
                if gone is not None:
                    return gone
    return None


def _is_there(context: Context, key: str) -> bool:
    return any(row.key == key for row in context.store.list(key, limit=1))


def _spans(root: Root, fetch: Fetch, first_offset: int) -> Iterator[Sequence[Entry]]:
    """What one task looks at: a single group of the lowest level, or a page of fragments."""
    for node in nodes(root.entries, fetch, first_offset=first_offset):
        if node.kind is EntryKind.GROUP:
            yield [node]
    page: list[Entry] = []
    for entry in root.entries:
        if entry.kind.level:
            continue
        page.append(entry)
        if len(page) == _FRAGMENTS_AT_ONCE:
            yield page
            page = []
    if page:
        yield page


def _missing(
    context: Context, stream: str, first_offset: int, span: Sequence[Entry], fetch: Fetch
) -> str | None:
    entries = fetch(span[0]).entries if span[0].kind.level else span
    live = [each for each in entries if each.next_offset > first_offset]
    wanted = {each.data_key(stream).path(context.prefix) for each in live}
    last = max(wanted, default="")
    after = list_start(context.prefix, stream, live[0].first_offset) if live else ""
    for page in context.pages(data_prefix(context.prefix, stream), after=after) if wanted else ():
        wanted.difference_update(row.key for row in page)
        if not wanted or (page and page[-1].key >= last):
            break
    return min(wanted, default=None)
