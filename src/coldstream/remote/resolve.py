"""Which stream a person means: the broker's directory name, or vhost and queue name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from coldstream.errors import InvalidInputError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.names import check_stream
from coldstream.ports import Catalog
from coldstream.wording import listed

_SHOWN = 10
_NEAR = 3
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def resolve(catalog: Catalog, text: str, *, state: StreamState = StreamState.LIVE) -> str:
    """The directory name that `text` stands for.

    A directory name is looked up directly; only a name that is none costs a listing.

    Args:
        catalog: the table.
        text: as typed.
        state: as in `pick`.

    Raises:
        NotFoundError: nothing has this name.
        InvalidInputError: several streams have it; the message lists them.
    """
    try:
        if catalog.get(check_stream(text)) is not None:
            return text
    except InvalidInputError:
        pass  # has characters that no directory has; it may still name a queue
    return pick(catalog.streams(), text, state=state)


def item_of(catalog: Catalog, stream: str) -> CatalogItem:
    """The item of a directory name.

    Raises:
        NotFoundError: there is none.
    """
    item = catalog.get(stream)
    if item is None:
        raise NotFoundError("the catalog does not know this stream", stream=stream)
    return item


def pick(items: Iterable[CatalogItem], text: str, *, state: StreamState = StreamState.LIVE) -> str:
    """The one stream among `items` that `text` names as VHOST/QUEUE or as QUEUE.

    A queue that was deleted and declared again has several directories; one that is alone in being
    in `state` is meant.

    Raises:
        NotFoundError: none is called so.
        InvalidInputError: several are.
    """
    known = list(items)
    matches = [
        item
        for item in known
        if item.name.queue and text in (f"{item.name.vhost}/{item.name.queue}", item.name.queue)
    ]
    meant = [item for item in matches if item.state is state]
    if len(meant) == 1:
        return meant[0].stream
    if not matches:
        raise no_such(known, text)
    return only(matches, text).stream


def no_such(known: Sequence[CatalogItem], text: str) -> NotFoundError:
    """That no stream among `known` is called so, and which may be meant."""
    return NotFoundError(
        f"no stream has the directory or queue name {text[:300]!r}{_meant(known, text)}"
    )


def only(matches: Sequence[CatalogItem], text: str) -> CatalogItem:
    """The one item of those that are called so, of which there are some.

    Raises:
        InvalidInputError: there are several.
    """
    if len(matches) > 1:
        names = sorted(f"{item.stream} ({item.name.vhost}/{item.name.queue})" for item in matches)
        raise InvalidInputError(
            f"{text!r} names {len(names)} streams, give the directory name of one: "
            f"{listed(names, _SHOWN)}"
        )
    return matches[0]


class Forms:
    """What each of many streams may be called, so that `resolve` finds that one.

    Args:
        items: all that there are, deleted ones too.
    """

    def __init__(self, items: Iterable[CatalogItem]) -> None:
        self._directories: set[str] = set()
        self._called: dict[str, list[CatalogItem]] = {}
        for item in items:
            self._directories.add(item.stream)
            for form in dict.fromkeys(queue_names(item)):
                self._called.setdefault(form, []).append(item)

    def of(self, item: CatalogItem) -> list[str]:
        """VHOST/QUEUE and the queue alone, where they mean this stream; then the directory."""
        return [*(each for each in queue_names(item) if self._means(each, item)), item.stream]

    def _means(self, form: str, item: CatalogItem) -> bool:
        matches = self._called.get(form, [])
        meant = [each for each in matches if each.state is StreamState.LIVE]
        meant = meant if len(meant) == 1 else matches
        return [each.stream for each in meant] == [item.stream] and form not in self._directories


def queue_names(item: CatalogItem) -> list[str]:
    """VHOST/QUEUE, then the queue alone; none where nobody has said its name."""
    name = item.name
    return [f"{name.vhost}/{name.queue}", name.queue] if name.queue else []


def _meant(items: Sequence[CatalogItem], text: str) -> str:
    """Which streams may be meant by a name that none has; a directory's tells its queue's."""
    queue = text.removeprefix("/").rpartition("/")[2]
    part = _ODD.sub("_", queue)
    near = get_close_matches(queue, {item.name.queue for item in items if item.name.queue}, _NEAR)
    found = [item.stream for item in items if part.strip("_") and f"_{part}_" in item.stream]
    found += [item.stream for item in items if item.name.queue in near]
    found += [item.stream for item in items if text in item.stream]
    if not found:
        return ""
    named = list(dict.fromkeys(found))
    return f"; did you mean {listed(named, _NEAR)}?"
