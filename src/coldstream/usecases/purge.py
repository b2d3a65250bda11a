"""Make what was erased go for good: every object that still has it, with all its versions.

What `collect` waits for a grace time for goes at once here, and nothing else: an object goes if it
is garbage by the same proof but its third part (docs/workflows.md, under "collect"), if it holds an
erased offset, and if it is older than any process that could still commit it (`publish`): who
writes an object for a root gives up after `hold_ms`, and a root that is there protects what it
names. Readers whose manifest is older find the object gone, and read the newer one. S3's clock is
read off a root that is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from coldstream.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from coldstream.names import data_prefix, list_start, parse_data_key
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.collect import ObjectKind, survives
from coldstream.plans.policy import PolicySet
from coldstream.plans.rebalance import Rebalance
from coldstream.ports import ObjectInfo, ObjectVersion, VersionDeleter
from coldstream.remote.context import Context
from coldstream.remote.erasures import erased_of
from coldstream.remote.publish import modified_ms
from coldstream.remote.roots import load
from coldstream.usecases.amend import amend
from coldstream.usecases.classify import Classifier
from coldstream.usecases.delete_stream import check_hold

#: Proofs of one page, each of which a claim or another change has undone.
_PROOFS = 5
_NAMED = 100
#: Passes in a row that find nothing before it is over.
_EMPTY_PASSES = 2
#: Passes over a stream's objects, with a pause between; then what still waits is told.
MAX_PASSES = 8


class PurgeState(StrEnum):
    """What the state machine should do next."""

    PURGING = "purging"
    SETTLE = "settle"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the steps so far have come.

    Attributes:
        after: where a pass goes on, as of `VersionDeleter.versions`; ("", "") at its beginning.
        found: whether earlier steps of the pass found something to delete, or that waits.
        empty: passes in a row that found nothing to delete and nothing that waits.
        passes: that are over.
    """

    after: tuple[str, str] = ("", "")
    found: bool = False
    empty: int = 0
    passes: int = 0


@dataclass(slots=True)
class Purge:
    """What one step did.

    Attributes:
        stream: directory name.
        state: what comes next.
        versions: deleted by this step, marks of deletions among them.
        bytes: of these.
        waiting: versions that somebody may still be about to commit, or that S3 did not delete.
        kept: keys of objects that hold erased offsets and that nobody may delete, with the reason;
            the first hundred.
        progress: for the next step.
    """

    stream: str
    state: PurgeState = PurgeState.SETTLE
    versions: int = 0
    bytes: int = 0
    waiting: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    progress: Progress = Progress()


@dataclass(frozen=True, slots=True)
class Concerned:
    """An object beside those of the manifest that holds some erased offsets."""

    key: str
    size: int
    kind: ObjectKind


def objects_beside(context: Context, stream: str, erased: OffsetSet) -> Iterator[Concerned]:
    """What `purge` would delete or keep, of current objects, for a plan; versions are not seen.

    Raises:
        As `purge`.
    """
    if not erased:
        return
    classifier = Classifier(context, load(context, stream))
    under = data_prefix(context.prefix, stream)
    for page in context.pages(under, until=list_start(context.prefix, stream, erased.end)):
        for row in page:
            if _holds(row.key, context.prefix, erased):
                kind = classifier.kind(row)
                if kind is not ObjectKind.REFERENCED:
                    yield Concerned(row.key, row.size, kind)


def _holds(path: str, prefix: str, erased: OffsetSet) -> bool:
    """Whether a key is that of a fragment with an erased offset."""
    try:
        key = parse_data_key(path, prefix)
    except InvalidInputError:
        return False
    return key.kind == "fragment" and erased.overlaps(key.first_offset, key.next_offset)


def purge(
    context: Context,
    deleter: VersionDeleter,
    stream: str,
    policies: PolicySet,
    *,
    progress: Progress,
    pause: Callable[[int], None],
    time_left: Callable[[], bool],
) -> Purge:
    """One step: delete versions page by page while there is time.

    Two passes must find nothing, some time apart: an upload that was under way may come late.

    Args:
        context: where; its `hold_ms` is that of every process that commits.
        deleter: the same bucket.
        stream: directory name.
        policies: all rules; a legal hold forbids it.
        progress: of the step before.
        pause: as in `amend`.
        time_left: whether there is time for another page.

    Raises:
        NotFoundError: the catalog does not know the stream, or an object of the tree is gone.
        ConflictError: a legal hold, the stream takes no commits, or its history changed again and
            again.
        CorruptDataError: the manifest or an erasure record is damaged: nothing is deleted.
        UnavailableError: S3 or DynamoDB did not answer, or S3 deletes nothing.
    """
    check_hold(load(context, stream).item, policies)
    erased = erased_of(context, stream).offsets
    if not erased:
        return Purge(stream, PurgeState.DONE)
    amended = amend(context, stream, lambda each: Rebalance(replace(each.root), ()), pause=pause)
    clock = modified_ms(context, amended.item.root_key)
    if clock is None:
        raise UnavailableError("the root that was just written is not listed", stream=stream)
    step = _PurgeStep(context, deleter, stream, erased, clock - context.hold_ms)
    return step.run(progress, time_left)


class _PurgeStep:
    def __init__(
        self,
        context: Context,
        deleter: VersionDeleter,
        stream: str,
        erased: OffsetSet,
        ripe_ms: int,
    ) -> None:
        self._context = context
        self._deleter = deleter
        self._stream = stream
        self._erased = erased
        self._ripe_ms = ripe_ms
        self.report = Purge(stream)

    def run(self, progress: Progress, time_left: Callable[[], bool]) -> Purge:
        report, under = self.report, data_prefix(self._context.prefix, self._stream)
        after, end = (
            progress.after,
            list_start(self._context.prefix, self._stream, self._erased.end),
        )
        while True:
            page = self._deleter.versions(under, after=after, limit=self._context.page_size)
            prefix, erased = self._context.prefix, self._erased
            self._delete([row for row in page.rows if _holds(row.key, prefix, erased)])
            # Keys sort by their first offset.
            if page.following is None or page.following[0] >= end:
                break
            after = page.following
            if not time_left():
                report.state = PurgeState.PURGING
                report.progress = replace(
                    progress, after=after, found=progress.found or self._has_found()
                )
                return report
        empty = 0 if progress.found or self._has_found() else progress.empty + 1
        report.progress = Progress(empty=empty, passes=progress.passes + 1)
        if empty >= _EMPTY_PASSES or report.progress.passes >= MAX_PASSES:
            report.state = PurgeState.DONE
        return report

    def _has_found(self) -> bool:
        return bool(self.report.versions or self.report.waiting)

    def _delete(self, rows: Sequence[ObjectVersion]) -> None:
        """Delete what is proved garbage just now, by a tree that only grows until then."""
        if not rows:
            return
        for _ in range(_PROOFS):
            loaded = load(self._context, self._stream)
            classifier = Classifier(self._context, loaded)
            kinds = {row.key: self._kind(classifier, row) for row in rows}
            now = self._context.catalog.get(self._stream)
            if now is not None and survives(loaded.item, now):
                break
        else:
            raise ConflictError("the stream's history changes again and again", stream=self._stream)
        going = [row for row in rows if kinds[row.key].garbage and self._is_ripe(row)]
        gone = set(self._deleter.delete_versions(going)) if going else set()
        self.report.versions += len(gone)
        self.report.bytes += sum(row.size for row in gone)
        for row in rows:
            kind = kinds[row.key]
            if row in gone or kind is ObjectKind.REFERENCED:
                continue
            self.report.waiting += int(kind.garbage or kind is ObjectKind.PENDING)
            if len(self.report.kept) < _NAMED:
                self.report.kept[row.key] = self._why(row, kind)

    def _is_ripe(self, row: ObjectVersion) -> bool:
        """Whether nobody can be about to commit it; a mark of a deletion holds nothing."""
        return row.size == 0 or row.modified_ms < self._ripe_ms

    def _why(self, row: ObjectVersion, kind: ObjectKind) -> str:
        if not kind.garbage:
            return kind.meaning
        if self._is_ripe(row):
            return "S3 did not delete it"
        return "written so lately that somebody may be about to commit it"

    def _kind(self, classifier: Classifier, row: ObjectVersion) -> ObjectKind:
        try:
            return classifier.kind(ObjectInfo(row.key, row.size, row.modified_ms))
        except NotFoundError as exc:
            if exc.key != row.key:
                raise
            # It was deleted before, and only its bytes could say whether they are anybody's last.
            return ObjectKind.UNIQUE
