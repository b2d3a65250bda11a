"""Which streams a query means: directories, queues, super streams, or patterns over their names.

And what is left to say of a stream that a query has begun to read and that is gone (`Gone`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from coldstream.errors import ColdstreamError, InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.root import Root
from coldstream.names import check_stream
from coldstream.plans import name_pattern
from coldstream.plans.probe import is_probe
from coldstream.ports import Catalog
from coldstream.reader.gap import Gap
from coldstream.remote.resolve import no_such, only
from coldstream.spark.options import is_pattern
from coldstream.wording import listed

_SHOWN = 10


def meant(
    catalog: Catalog,
    wanted: Sequence[str],
    *,
    super_streams: Sequence[str] = (),
    vhost: str = "",
    known: Collection[str] = (),
) -> list[CatalogItem]:
    """The items of all streams that are meant, sorted by directory, none twice.

    A directory is looked up; only a name that is none costs a listing, one for all.

    Args:
        catalog: the table.
        wanted: directories, QUEUE or VHOST/QUEUE, or patterns (`plans.name_pattern`) that the name
            of a queue, or of a directory where nobody has recorded the queue, must match as a
            whole.
        super_streams: SUPER_STREAM or VHOST/SUPER_STREAM, or patterns; all partitions that live are
            meant.
        vhost: of the queues; "" for any.
        known: directories that a query has read before; a name may stand for one of them that is
            gone, and then for no item.

    Raises:
        NotFoundError: a name stands for nothing, or for a stream that was deleted for good.
        InvalidInputError: a name stands for several streams, or a pattern is none.
    """
    found: dict[str, CatalogItem] = {}
    names: list[str] = []
    for text in wanted:
        item = None if is_pattern(text) else _directory(catalog, text)
        if text in known and is_gone(item):
            continue
        if item is None:
            names.append(text)
        else:
            found[item.stream] = _readable(item)
    if names or super_streams:
        items = [item for item in catalog.streams() if not vhost or item.name.vhost == vhost]
        for text in names:
            chosen = _matching(items, text) if is_pattern(text) else _queue(items, text, known)
            found.update((item.stream, item) for item in chosen)
        for text in super_streams:
            found.update((item.stream, item) for item in _partitions(items, text, known))
    return [found[stream] for stream in sorted(found)]


def _directory(catalog: Catalog, text: str) -> CatalogItem | None:
    try:
        return catalog.get(check_stream(text))
    except InvalidInputError:
        return None  # has characters that no directory has; it may still name a queue


def _readable(item: CatalogItem) -> CatalogItem:
    if item.state is StreamState.DELETED:
        raise NotFoundError("the stream was deleted for good", stream=item.stream)
    return item


def _matching(items: Iterable[CatalogItem], pattern: str) -> list[CatalogItem]:
    matches = _matcher(pattern)
    return [
        item
        for item in items
        if not item.state.is_tombstone
        and not is_probe(item.stream)
        and matches(item.name.queue or item.stream)
    ]


def _matcher(pattern: str) -> Callable[[str], object | None]:
    trouble = name_pattern.problem(pattern)
    if trouble is not None:
        raise InvalidInputError(f"the pattern {pattern[:80]!r} {trouble}")
    return name_pattern.compiled(pattern).fullmatch


def _partitions(
    items: Iterable[CatalogItem], text: str, known: Collection[str]
) -> list[CatalogItem]:
    """The partitions of the super streams that a name or a pattern means.

    None at all where the query has read partitions before, and a name has none any more.
    """
    every = [item for item in items if item.name.super_stream]
    if is_pattern(text):
        matches = _matcher(text)
        meant = [item for item in every if matches(item.name.super_stream)]
    else:
        meant = [
            item
            for item in every
            if text in (item.name.super_stream, f"{item.name.vhost}/{item.name.super_stream}")
        ]
        hosts = sorted({item.name.vhost for item in meant})
        if len(hosts) > 1:
            raise InvalidInputError(
                f"{text!r} names a super stream in each of {listed(hosts, _SHOWN)}: write"
                f" {hosts[0]}/{text}, or give option vhost"
            )
        if not meant and not known:
            raise NotFoundError(
                f"no stream is recorded as a partition of a super stream {text[:300]!r}: the agent"
                " learns it from the broker's management API when it claims a partition"
            )
    return [item for item in meant if not item.state.is_tombstone]


def _queue(
    items: Sequence[CatalogItem], text: str, known: Collection[str]
) -> Sequence[CatalogItem]:
    """The one stream of that queue; of several directories the one that lives.

    None at all where the query knows every one of them and all are gone.
    """
    matches = [
        item
        for item in items
        if item.name.queue and text in (f"{item.name.vhost}/{item.name.queue}", item.name.queue)
    ]
    alive = [item for item in matches if item.state is StreamState.LIVE] or [
        item for item in matches if not (is_gone(item) and item.stream in known)
    ]
    if matches and not alive:
        return []
    if not alive:
        if any(item.name.super_stream == text for item in items):
            raise NotFoundError(f"{text!r} is a super stream: read it by option superStream")
        raise no_such(items, text)
    return [_readable(only(alive, text))]


def still_meant(
    item: CatalogItem, wanted: Sequence[str], *, super_streams: Sequence[str] = (), vhost: str = ""
) -> bool:
    """Whether options may be the ones by which a query has begun to read a stream.

    Names of queues and bindings change, and are recorded late, so this asks for less than `meant`:
    only who names other streams now leaves this one out.

    Args:
        item: of a stream that a query has read before, and that is there.
        wanted, super_streams, vhost: as for `meant`.
    """
    if vhost and item.name.vhost not in ("", vhost):
        return False
    if super_streams and not item.name.super_stream:
        return True
    queue, host = item.name.queue, item.name.vhost
    names = {item.stream, queue, f"{host}/{queue}"}
    groups = {item.name.super_stream, f"{host}/{item.name.super_stream}"}
    return any(
        _matcher(text)(item.stream) or _matcher(text)(queue) if is_pattern(text) else text in names
        for text in wanted
    ) or any(
        _matcher(text)(item.name.super_stream) if is_pattern(text) else text in groups
        for text in super_streams
    )


@dataclass(frozen=True, slots=True)
class Gone(Gap):
    """Offsets that went with their stream; an empty range where nobody knows how far it reached.

    Its `reason` says nothing.

    Attributes:
        stream: directory name.
    """

    stream: str = ""

    def __str__(self) -> str:
        first, last = self.first_offset, self.next_offset - 1
        if first > last:
            return f"from offset {first} on nobody knows the stream {self.stream} any more"
        return (
            f"offsets {first} to {last} are gone: the stream {self.stream} was deleted before they"
            " were read"
        )


def is_gone(item: CatalogItem | None) -> bool:
    """Whether nothing of a stream can be read any more; before, a tombstone may be called off."""
    return item is None or item.state is StreamState.DELETED


def is_leaving(item: CatalogItem | None) -> bool:
    """Whether an object of a stream may be missing because the stream is, or is being, deleted."""
    return item is None or item.state.is_tombstone


def deleted(item: CatalogItem) -> NotFoundError:
    """What to say of a stream whose objects went while it was read."""
    return NotFoundError(
        "the stream was deleted: its objects are gone, or are going now", stream=item.stream
    )


@contextmanager
def telling_deletion(catalog: Catalog, stream: str) -> Iterator[None]:
    """Say that a stream was deleted, where an object of it is missing for that reason.

    Raises:
        NotFoundError: that; or the one that came, if the stream is there.
    """
    try:
        yield
    except NotFoundError as error:
        try:
            item = catalog.get(stream)
        except ColdstreamError:
            raise error from None
        if is_leaving(item):
            raise deleted(item or CatalogItem(stream, "")) from error
        raise


def rest_of(item: CatalogItem) -> Root:
    """What its tombstone says of a stream, as a manifest without anything to read."""
    return Root(item.next_offset, item.next_offset, epoch=item.epoch, ledger=item.ledger)
