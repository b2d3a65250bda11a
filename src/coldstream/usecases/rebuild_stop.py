"""Stop commits and deleters while a manifest is made anew, and let them go on where it was not."""

from __future__ import annotations

from coldstream.errors import ColdstreamError, ConflictError, UnavailableError
from coldstream.manifest.catalog import CatalogItem, StateChange, StreamState
from coldstream.ports import Landed, Unknown
from coldstream.remote.context import Context

#: What to do about a stream that is deleted.
NO_WAY = "a new stream of that name has a directory of its own: list it with `coldstream streams`"
_STILL_STOPPED = "run `coldstream rebuild STREAM --write` again: at its end commits go on"
_CALL_OFF = "call the deletion off with `coldstream undelete`, then run this again"


def stop_others(
    context: Context, stream: str, item: CatalogItem | None, token: int
) -> CatalogItem | None:
    """Set the state that stops commits and deleters; an item of another table stops them anyway.

    Args:
        context: where.
        stream: directory name.
        item: the stream's; None if it has none.
        token: of the change of state.

    Raises:
        ConflictError: the stream is deleted or being deleted, or another writer changed its state.
        UnavailableError: DynamoDB did not answer.
    """
    if item is None or item.table_id != context.catalog.table_id():
        return item
    if item.state is StreamState.REBUILDING:
        return item
    if item.state is not StreamState.LIVE:
        deleting = item.state is StreamState.DELETING
        raise ConflictError(
            f"the stream is {item.state}", stream=stream, remedy=_CALL_OFF if deleting else NO_WAY
        )
    outcome = context.catalog.change_state(StateChange.of(item, StreamState.REBUILDING, token))
    if not isinstance(outcome, Landed):
        raise ConflictError("another writer changed the stream's state", stream=stream)
    return outcome.item


def give_back(context: Context, stream: str, token: int) -> None:
    """Let commits go on: the manifest is what it was before.

    Args:
        context: where.
        stream: directory name.
        token: of the change of state that stopped it; of another one it is another's.

    Raises:
        UnavailableError: nobody can say whether it goes on.
    """
    try:
        item = context.catalog.get(stream)
        if item is None or (item.state, item.state_token) != (StreamState.REBUILDING, token):
            return
        change = StateChange.of(item, StreamState.LIVE, context.new_uid() or 1)
        if not isinstance(context.catalog.change_state(change), Unknown):
            return
        reason = "the table did not answer"
    except ColdstreamError as exc:
        reason = exc.reason
    raise UnavailableError(
        f"the rebuild has ended, and the stream may take no commits yet: {reason}",
        stream=stream,
        remedy=_STILL_STOPPED,
    )
