"""What people are told about streams that were deleted, instead of errors about missing objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coldstream.cli.output import note, when
from coldstream.clock import now_ms
from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.ports import Catalog
from coldstream.remote.resolve import item_of, resolve


class DeletedError(NotFoundError):
    """The stream was deleted, and nothing brings it back."""

    why = "deleted"
    remedy = (
        "a new stream of that name has a directory of its own: list it with `coldstream streams`"
    )


class NotLiveError(ConflictError):
    """The stream takes no commits now, so no workflow can work on it."""

    why = "not live"
    remedy = (
        "see its state with `coldstream streams`, call a deletion off with `coldstream undelete`"
    )


class RebuildingError(NotLiveError):
    """Its manifest is being made anew, or whoever did that was stopped half-way."""

    remedy = (
        "wait for the rebuild; where none is running, end it with `coldstream rebuild STREAM"
        " --write`"
    )


class MissingObjectError(CorruptDataError):
    """An object is gone that the manifest refers to: data that the catalog promises is lost."""

    why = "missing object"
    remedy = (
        "see all that is missing with `coldstream verify STREAM`, then `coldstream repair`:"
        " a replica or another object may still have it"
    )


def readable(catalog: Catalog, text: str) -> str:
    """The directory name of a stream that can be read; says on stderr if it is being deleted.

    Raises:
        NotFoundError: nothing has this name.
        DeletedError: it was deleted for good.
        InvalidInputError: several streams have this name.
    """
    item = item_of(catalog, resolve(catalog, text))
    if item.state is StreamState.DELETING:
        note(f"{item.stream} {deletion(item)}")
    _refuse_deleted(item)
    return item.stream


def workable(catalog: Catalog, text: str, *, deleted_too: bool = False) -> str:
    """The directory name of a stream that workflows can work on.

    Args:
        catalog: the table.
        text: as typed.
        deleted_too: whether one that was deleted for good is meant, too.

    Raises:
        NotFoundError: nothing has this name.
        DeletedError: it was deleted for good.
        NotLiveError: it is being deleted.
        RebuildingError: it is being rebuilt.
        InvalidInputError: several streams have this name.
    """
    item = item_of(catalog, resolve(catalog, text))
    if deleted_too and item.state is StreamState.DELETED:
        return item.stream
    _refuse_deleted(item)
    if item.state is StreamState.DELETING:
        raise NotLiveError(f"the stream {deletion(item)}", stream=item.stream)
    if item.state is not StreamState.LIVE:
        raise RebuildingError(f"the stream is {item.state}", stream=item.stream)
    return item.stream


def deletion(item: CatalogItem) -> str:
    """What became of a tombstone's stream, to follow its name."""
    until = when(item.undelete_until)
    if item.state is StreamState.DELETED:
        return f"was deleted, its undelete time ended at {until}: it is gone"
    if item.undelete_until > now_ms():
        return f"was deleted; it can be undeleted until {until}"
    return (
        f"was deleted, its undelete time ended at {until}: its objects are about to go, until then"
        " it can be undeleted"
    )


def refuse_if_gone(catalog: Catalog, stream: str) -> None:
    """See whether a stream that could be read a moment ago is gone now.

    Raises:
        DeletedError: it is.
    """
    _refuse_deleted(item_of(catalog, stream))


@contextmanager
def telling_deletion(catalog: Catalog, stream: str) -> Iterator[None]:
    """Where an object is missing because the stream was deleted meanwhile, say that instead.

    Where it was not deleted, what the manifest refers to is lost, and that is no typing error.

    Raises:
        DeletedError, MissingObjectError: in place of the NotFoundError.
    """
    try:
        yield
    except NotFoundError as error:
        refuse_if_gone(catalog, stream)
        if error.key is None:
            raise
        raise MissingObjectError(
            f"the manifest refers to an object that is gone: {error.reason}",
            stream=error.stream or stream,
            offset=error.offset,
            key=error.key,
        ) from error


def _refuse_deleted(item: CatalogItem) -> None:
    if item.state is StreamState.DELETED:
        raise DeletedError(f"the stream {deletion(item)}", stream=item.stream)
