"""Make a stream's manifest anew from the bucket, when its root or its groups are damaged or gone.

The state `rebuilding` comes first: it stops commits, and with them everybody who deletes. A delete
that was sent before that may still be under way, so its time-out is waited for. Then one pass over
what the trees name and LIST shows (plans/rebuild.py), groups, the root, a last look whether
everything is there, and the item in one conditional write. Nothing is written before it is known
that the new manifest may land. A rebuild that dies leaves the state and some orphans; the next one
goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coldstream.errors import (
    ConflictError,
    CorruptDataError,
    CoversLessError,
    InvalidInputError,
    NotFoundError,
    RefusedFragmentError,
    UnknownOutcomeError,
)
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.root import Root
from coldstream.names import MAX_OFFSET, data_prefix, stream_prefix
from coldstream.plans.rebuild import KnownManifest, Rebuild, Rebuilt
from coldstream.plans.rebuild_told import Shortfall
from coldstream.plans.rebuild_trees import sections
from coldstream.plans.reconcile import next_version
from coldstream.ports import MAX_DELETE_MS
from coldstream.remote.context import Context
from coldstream.remote.trailers import listed_trailers
from coldstream.usecases.claim import foreign
from coldstream.usecases.quarantine import load_record, write_record
from coldstream.usecases.rebuild_land import Spool, land, put_holes
from coldstream.usecases.rebuild_objects import sound
from coldstream.usecases.rebuild_state import KnownStream, known_state
from coldstream.usecases.rebuild_stop import NO_WAY, give_back, stop_others
from coldstream.usecases.surviving import surviving_record
from coldstream.wording import listed


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild found, and whether it landed.

    Attributes:
        stream: directory name.
        landed: whether the item names the new root.
        rebuilt: the result of the pass.
        groups: how many were made.
        root_key: of the newest readable root, "" if there was none.
        damaged: keys of newer roots that could not be read.
        item: what the table said before, None if it had nothing.
        guessed: whether some of the ledger was guessed, by trailers or keys.
        disputed: epochs about whose floor trailers disagree.
    """

    stream: str
    landed: bool
    rebuilt: Rebuilt
    groups: int
    root_key: str
    damaged: tuple[str, ...]
    item: CatalogItem | None
    guessed: bool = False
    disputed: tuple[int, ...] = ()

    @property
    def refused(self) -> tuple[RefusedFragmentError, ...]:
        """One error for each fragment whose trailer does not hold; the first 1,000."""
        return tuple(self.rebuilt.told.refused)

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """What the new manifest lacks of what trees or LIST show; the first 1,000."""
        return tuple(self.rebuilt.told.shortfalls)


#: No manifest without data is installed over objects, whoever accepts it.
_NOTHING_LEFT = (
    "nothing in the bucket can be read: look at its objects; if they are of no use, move them away,"
    " and the agent begins the stream anew"
)


class LackingError(CoversLessError):
    """A rebuild that did not land because its manifest would lack something.

    Attributes:
        report: what came out.
    """

    report: RebuildReport


def rebuild(
    context: Context,
    stream: str,
    *,
    branching: int,
    trailers: bool = True,
    dry_run: bool = True,
    accept_less: bool = False,
    wait: Callable[[int], None] | None = None,
    delete_ms: int = MAX_DELETE_MS,
) -> RebuildReport:
    """Rebuild the manifest of one stream from its trees and its objects.

    What the newest readable tree names stays, and what it says of claims and retention holds; see
    `known_state` and `plans.rebuild`. If the new manifest lacks something that a tree or LIST has,
    it does not land unless `accept_less` says so; then holes stand for it.

    Args:
        context: where.
        stream: directory name.
        branching: entries of a full group.
        trailers: whether to read and check the trailer of every fragment; without them look-ups by
            time open every fragment, and retention by age takes none.
        dry_run: only say what would come out.
        accept_less: install it although something is missing. A manifest without any data is never
            installed over a bucket that has some.
        wait: waits a number of ms, once the stream is stopped and before the bucket is listed, for
            a delete that is under way. What would be refused is refused before. Without it only
            what a certain tree names is surely no garbage; of the rest it is looked right before
            the commit whether it is still there.
        delete_ms: how long a delete may be under way.

    Raises:
        NotFoundError: the bucket has nothing of this stream, and no item says what there was.
        ForeignBucketError: the same, and the item has held data.
        InvalidInputError: it is to be committed, but no trailer was to be read.
        ConflictError: the stream is deleted or being deleted, another writer changed its item, or
            an object has gone meanwhile; nothing was committed.
        LackingError: the manifest would lack something; nothing was committed.
        CorruptDataError: there are fragments of more epochs than any stream has.
        UnavailableError: S3 or DynamoDB did not answer.
        KeyboardInterrupt: somebody has ended it. Nothing was committed, and the stream goes on.
    """
    item = _begun(context, stream, trailers=trailers or dry_run, accept_less=accept_less)
    if dry_run:
        state = known_state(context, stream, item, by_trailers=trailers)
        with Spool() as spool:
            return _report(state, _pass(context, state, branching, trailers, spool), spool)
    token = context.new_uid() or 1
    if item is not None and item.state is StreamState.REBUILDING:
        token = item.state_token  # one that died
    try:
        item = stop_others(context, stream, item, token)
        if wait is not None:
            if delete_ms and not accept_less:
                _refuse_early(context, stream, item, branching)
            wait(delete_ms)
        return _install(context, stream, item, branching, accept_less)
    except UnknownOutcomeError:
        raise
    except (Exception, KeyboardInterrupt):
        # Commits and deletes must not stand still because a rebuild could not be done, or somebody
        # did not wait for it. Where it has landed all the same, the state is another one by now.
        give_back(context, stream, token)
        raise


def _begun(
    context: Context, stream: str, *, trailers: bool, accept_less: bool
) -> CatalogItem | None:
    """The stream's item, if the request makes sense.

    Raises:
        As `rebuild`.
    """
    if not trailers:
        # A fragment that commits have refused and the good one in its place look alike by keys.
        raise InvalidInputError(
            "a manifest is installed only from fragments whose trailers were read", stream=stream
        )
    item = context.catalog.get(stream)
    if item is not None and item.state is StreamState.DELETED:
        raise ConflictError(
            "the stream is deleted, and nothing leaves that state", stream=stream, remedy=NO_WAY
        )
    under = stream_prefix(context.prefix, stream)
    if not context.store.list(under, limit=1):
        _check_known(context, stream, item, under, accept_less=accept_less)
    return item


def _install(
    context: Context, stream: str, item: CatalogItem | None, branching: int, accept_less: bool
) -> RebuildReport:
    with Spool() as spool:
        state, report = _made(context, stream, item, branching, accept_less, spool)
        rebuilt = report.rebuilt
        put_holes(context, stream, rebuilt.made_up)
        spool.put(context, stream)
        key = _record_key(context, state)
        rebuilt = replace(rebuilt, root=replace(rebuilt.root, quarantine_key=key))
        land(context, stream, rebuilt.root, item, state.versions)
        return replace(report, rebuilt=rebuilt, landed=True)


def _check_known(
    context: Context, stream: str, item: CatalogItem | None, under: str, *, accept_less: bool
) -> None:
    """Let an empty bucket be rebuilt only where the item says all that there was.

    Raises:
        NotFoundError: nothing says what there was.
        ForeignBucketError: it has held data, of which no offset is left to be told as missing.
    """
    if (
        item is None
        or not item.root_key
        or item.table_id != context.catalog.table_id()
        or item.state not in (StreamState.LIVE, StreamState.REBUILDING)
    ):
        raise NotFoundError("the bucket has nothing of this stream", stream=stream)
    empty = item.first_offset == item.next_offset
    if empty and not (item.never_held or accept_less):
        raise foreign(item, under)


def _refuse_early(context: Context, stream: str, item: CatalogItem | None, branching: int) -> None:
    """Refuse what will be refused before the wait and not after it: a delete adds nothing.

    But where the ledger is guessed, what a delete takes may be what the guess refuses.

    Raises:
        LackingError: the manifest would have less than there is.
    """
    state = known_state(context, stream, item, by_trailers=True)
    if not state.guessed:
        with Spool() as spool:
            report = _report(state, _pass(context, state, branching, True, spool), spool)
        _check_coverage(report, known=state.next_offset is not None, accept_less=False)


def _made(
    context: Context,
    stream: str,
    item: CatalogItem | None,
    branching: int,
    accept_less: bool,
    spool: Spool,
) -> tuple[KnownStream, RebuildReport]:
    """The manifest as it would be, its groups in `spool`, if it may land.

    Raises:
        LackingError: it has less than there is.
    """
    state = known_state(context, stream, item, by_trailers=True)
    report = _report(state, _pass(context, state, branching, True, spool), spool)
    _check_coverage(report, known=state.next_offset is not None, accept_less=accept_less)
    return state, report


def _pass(
    context: Context, state: KnownStream, branching: int, trailers: bool, spool: Spool
) -> Rebuilt:
    stream, first, next_offset = state.stream, state.first_offset, state.next_offset
    plan = Rebuild(
        context.prefix,
        stream,
        KnownManifest(
            state.ledger,
            first_offset=first,
            sections=None
            if first is None or next_offset is None
            else sections(lambda number: state.tree(context, number), first, next_offset),
            until=MAX_OFFSET if next_offset is None else next_offset,
            guessed=state.guessed,
            certain_end=state.own,
        ),
        branching=branching,
        uids=iter(context.new_uid, None),
        trailers=(lambda listed: listed_trailers(context, listed)) if trailers else None,
        sound=(lambda fragments: sound(context, fragments)) if trailers else None,
    )
    for node in plan.groups(context.pages(data_prefix(context.prefix, stream))):
        spool.add(node)
    rebuilt = plan.rebuilt(version=next_version(state.item, state.versions))
    if state.root is None:
        return rebuilt
    return replace(rebuilt, root=_with_last_chunk(rebuilt.root, state.root))


def _report(state: KnownStream, rebuilt: Rebuilt, spool: Spool) -> RebuildReport:
    return RebuildReport(
        stream=state.stream,
        landed=False,
        rebuilt=rebuilt,
        groups=spool.count,
        root_key=state.root_key,
        damaged=state.damaged,
        item=state.item,
        guessed=state.guessed,
        disputed=state.disputed,
    )


def _check_coverage(report: RebuildReport, *, known: bool, accept_less: bool) -> None:
    """Let nothing land that has less than there is, unless that was asked for.

    Raises:
        LackingError: it has less.
    """
    rebuilt, lacking = report.rebuilt, report.shortfalls
    empty = not rebuilt.root.fragments and not known and rebuilt.any_data
    if not empty and (accept_less or not lacking):
        return
    less = "nothing of what the bucket has" if empty else "less than there is"
    told = [f"offsets {each.first} to {each.next_offset - 1}: {each.why}" for each in lacking]
    what = listed(told, 3, total=len(told) + rebuilt.told.more, separator="; ")
    error = LackingError(
        f"the new manifest would have {less}{f': {what}' if what else ''}; nothing was committed,"
        " and the stream stays as it is",
        stream=report.stream,
        offset=lacking[0].first if lacking else rebuilt.root.first_offset,
        remedy=_NOTHING_LEFT if empty else None,
    )
    error.report = report
    raise error


def _record_key(context: Context, state: KnownStream) -> str:
    """Key of the quarantine record that the new root names.

    That of the item's own root. Where nobody knows that root, what all records say together: a
    record that is lost from sight would let `collect` take the last copy of what it names.
    """
    old = state.root.quarantine_key if state.root is not None else ""
    certain = state.own and state.item is not None and state.root_key == state.item.root_key
    found = None
    try:
        found = load_record(context, state.stream, old)
    except (CorruptDataError, NotFoundError):
        certain = False
    if certain:
        return old
    record = surviving_record(context, state.stream, state.ledger if state.own else None)
    if record.empty:
        return ""
    return (
        old if record == found else write_record(context, state.stream, state.ledger.epoch, record)
    )


def _with_last_chunk(rebuilt: Root, root: Root) -> Root:
    """Keep what the old root remembers and no fragment says: quarantine, name, the last chunk."""
    last_chunk = rebuilt.last_chunk
    hole = len(rebuilt.entries) > 0 and rebuilt.entries[-1].kind is EntryKind.HOLE
    if (last_chunk is None or hole) and rebuilt.next_offset == root.next_offset:
        last_chunk = root.last_chunk
    return replace(
        rebuilt,
        last_chunk=last_chunk,
        quarantine_key=root.quarantine_key,
        shift=root.shift,
        name=root.name,
    )
