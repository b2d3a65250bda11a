"""Delete a stream: tombstone, undelete time, and then every object below its prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import CatalogItem, StateChange, StreamState
from coldstream.names import stream_prefix
from coldstream.plans.delete import expiry, tombstone, undeletion
from coldstream.plans.policy import PolicySet, effective
from coldstream.ports import Deleter, Landed, NotLanded
from coldstream.remote.context import Context
from coldstream.remote.roots import own_item


class SweepState(StrEnum):
    """What the state machine should do next."""

    SWEEPING = "sweeping"
    SETTLE = "settle"
    DONE = "done"
    CALLED_OFF = "called_off"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one step of a sweep did.

    Attributes:
        stream: directory name.
        state: what comes next.
        objects: deleted by this step.
        bytes: of these objects.
        empty: how often in a row the prefix was seen empty.
    """

    stream: str
    state: SweepState
    objects: int
    bytes: int
    empty: int


def delete_stream(
    context: Context,
    stream: str,
    policies: PolicySet,
    *,
    now_ms: int,
    undelete_ms: int,
    rules_revision: int | None = None,
) -> CatalogItem:
    """Turn the item into a tombstone. No object goes before the undelete time is over.

    Args:
        context: where.
        stream: directory name.
        policies: all rules; a legal hold forbids the deletion.
        now_ms: ms since the Unix epoch.
        undelete_ms: how long the deletion can be called off.
        rules_revision: of `policies`; a hold that came into force since they were read forbids the
            deletion, too. None where nobody else can change them.

    Returns:
        The item as it is now; also where an earlier call had begun the deletion.

    Raises:
        NotFoundError: the catalog does not know the stream.
        ConflictError: a legal hold, a restored table, or another writer changed the state.
        UnknownOutcomeError: nobody can say whether it landed; try again.
    """
    item = own_item(context.catalog, stream)
    if item.state.is_tombstone:
        return item
    check_hold(item, policies)
    change = tombstone(item, until_ms=now_ms + undelete_ms, uid=_token(context))
    return _perform(context, replace(change, rules_revision=rules_revision))


def undelete_stream(context: Context, stream: str) -> CatalogItem:
    """Call a deletion off; the stream is live again with all it had.

    Raises:
        NotFoundError: the catalog does not know the stream.
        ConflictError: it is not being deleted, or its objects are already going.
        UnknownOutcomeError: nobody can say whether it landed; try again.
    """
    item = own_item(context.catalog, stream)
    return _perform(context, undeletion(item, uid=_token(context)))


def sweep(
    context: Context,
    deleter: Deleter,
    stream: str,
    policies: PolicySet,
    *,
    revision: int,
    empty: int,
    now_ms: int,
    time_left: Callable[[], bool],
    rules_revision: int | None = None,
) -> Sweep:
    """Delete what lies below the prefix of a stream whose undelete time is over, page by page.

    Uploads of an agent that has not heard of the deletion may still arrive, so the prefix has to
    be seen empty twice, some time apart; what comes even later is for `collect`.

    Args:
        context: where.
        deleter: the same bucket.
        stream: directory name.
        policies: all rules; a legal hold stops the sweep, also one that has begun.
        revision: of the tombstone that this sweep was started for.
        empty: how often in a row earlier steps saw the prefix empty.
        now_ms: ms since the Unix epoch.
        time_left: whether there is time for another page.
        rules_revision: of `policies`, as in `delete_stream`. The change of the state to `deleted`
            and a hold exclude each other; one that comes after it saves what is still there.

    Raises:
        NotFoundError: the catalog does not know the stream: nothing is provable, nothing goes.
        ConflictError: a restored table, a legal hold, or another change of the state.
        UnavailableError: the undelete time is not over, or S3 deletes nothing.
    """
    item = own_item(context.catalog, stream)
    if item.state is StreamState.DELETING and item.revision == revision:
        if now_ms < item.undelete_until:
            raise UnavailableError("the undelete time is not over", stream=stream)
        check_hold(item, policies)
        change = expiry(item, uid=_token(context))
        item = _perform(context, replace(change, rules_revision=rules_revision))
    if item.state is not StreamState.DELETED or item.revision != revision + 1:
        return Sweep(stream, SweepState.CALLED_OFF, 0, 0, 0)
    check_hold(item, policies)  # whoever made it `deleted` may not have asked
    if now_ms < item.undelete_until:
        raise UnavailableError("the undelete time is not over", stream=stream)
    objects = size = 0
    while True:
        swept = sweep_prefix(context, deleter, stream, time_left=time_left)
        objects, size = objects + swept.objects, size + swept.bytes
        if swept.left is None and not swept.objects:
            empty += 1
            state = SweepState.DONE if empty >= 2 else SweepState.SETTLE
            return Sweep(stream, state, objects, size, empty)
        empty = 0
        if swept.refused and not swept.objects:
            raise UnavailableError(
                f"S3 deletes none of the {swept.refused} objects that are left: {swept.trouble}",
                stream=stream,
                key=ascii(swept.left)[1:-1],
            )
        if not time_left():
            return Sweep(stream, SweepState.SWEEPING, objects, size, 0)


@dataclass(slots=True)
class SweptPrefix:
    """What one pass over a prefix did.

    Attributes:
        objects: deleted.
        bytes: of these objects.
        refused: objects that S3 did not delete.
        left: key of the first of them, or of where time ended; None if the pass saw all go.
        trouble: the first of S3's reasons.
    """

    objects: int = 0
    bytes: int = 0
    refused: int = 0
    left: str | None = None
    trouble: ColdstreamError | None = None


def sweep_prefix(
    context: Context, deleter: Deleter, stream: str, *, time_left: Callable[[], bool]
) -> SweptPrefix:
    """Delete all that lies below a stream's prefix, whatever its key, once from begin to end.

    What S3 does not delete (Object Lock, say) stops nothing behind it. Each page begins behind the
    one before, so the pass ends, also where an agent uploads meanwhile.

    Raises:
        UnavailableError, PermissionDeniedError: the listing.
    """
    swept, after = SweptPrefix(), ""
    under = stream_prefix(context.prefix, stream)
    while True:
        rows = context.store.list(under, start_after=after, limit=context.page_size)
        gone: set[str] = set()
        try:
            gone = set(deleter.delete([row.key for row in rows])) if rows else set()
        except (PermissionDeniedError, UnavailableError) as exc:
            swept.trouble = swept.trouble or exc
        for row in rows:
            if row.key in gone:
                swept.objects += 1
                swept.bytes += row.size
            else:
                swept.refused += 1
                swept.left = swept.left or row.key
        if len(rows) < context.page_size:
            return swept
        after = rows[-1].key
        if not time_left():
            swept.left = swept.left or after
            return swept


def check_hold(item: CatalogItem, policies: PolicySet) -> None:
    """See that no rule holds a stream, nor may hold it.

    Raises:
        ConflictError: one does.
    """
    rules = effective(policies, item.stream, item.name)
    if rules.hold:
        raise ConflictError(
            f"the stream is under a legal hold by {', '.join(rules.hold_rules)}",
            stream=item.stream,
        )
    if rules.unsure_holds:
        raise ConflictError(
            "nobody has recorded which queue this is, and it may be under a legal hold by "
            f"{', '.join(rules.unsure_holds)}; its agent records the name when it claims",
            stream=item.stream,
        )


def _token(context: Context) -> int:
    return context.new_uid() or 1  # 0 means "never changed"


def _perform(context: Context, change: StateChange) -> CatalogItem:
    outcome = context.catalog.change_state(change)
    if isinstance(outcome, Landed):
        return outcome.item
    if isinstance(outcome, NotLanded):
        raise ConflictError(
            "another writer changed the stream's state, or the rules, since they were read",
            stream=change.stream,
        )
    raise UnknownOutcomeError(
        "nobody can say whether the stream's state changed; look, and try again",
        stream=change.stream,
    )
