"""Put a corrupt or missing range right: from its own object, the bucket, or a broker's replica.

New objects first, then one commit that swaps them in, as consolidate does. What was replaced stays
where it is until `collect` has proved that nobody needs it. A repair that dies leaves objects that
nobody refers to; the next one finds the same damage and begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import ConflictError, NotFoundError
from coldstream.manifest.entries import MAX_RECORDS, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.manifest.tree import Fetch, leaves
from coldstream.names import DataKey
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.assemble import Assembled, assemble, fragment_of
from coldstream.plans.rebalance import Rebalance
from coldstream.plans.repair import Known, known_of
from coldstream.remote.context import Context
from coldstream.remote.roots import Snapshot, load
from coldstream.soundness.fragment import sound
from coldstream.soundness.trailer import entry_of
from coldstream.usecases.repair_report import Action, Repair, RepairReport
from coldstream.usecases.repair_sources import OWN, Finder, Replica, listed_size
from coldstream.usecases.swap import Swaps, swap

#: Fragments in one commit.
_AT_ONCE = 16
#: Bytes of new objects in one commit, unless one alone has more: they are held in memory until
#: then, and on a slow link they must be written within the time that a root may take (`publish`).
_BYTES_AT_ONCE = 32 * 2**20


@dataclass(frozen=True, slots=True)
class _RepairPlan:
    """A repair with what is written for it."""

    repair: Repair
    known: Known
    assembled: Assembled
    restated: Entry | None = None

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        if self.restated is not None:
            return 0
        found = sum(len(part.chunk.buffer) for part in self.assembled.parts)
        return max(found, self.repair.entry.size)


def repair(
    context: Context,
    stream: str,
    *,
    ranges: Sequence[tuple[int, int]] | None,
    replicas: Sequence[Replica] = (),
    lost: bool = False,
    branching: int,
    pause: Callable[[int], None],
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> RepairReport:
    """Repair what is damaged of a stream.

    Args:
        context: where.
        stream: directory name.
        ranges: offsets [first, next) that are looked at; None for all, which reads every byte.
        replicas: brokers' copies, asked after the bucket.
        lost: whether offsets that no source has are declared lost, as far as `ranges` name them.
        branching: entries of a full group.
        pause: as in `amend`.
        dry_run: only say what would be done.
        tell: told of every fragment that is not as it should be.

    Raises:
        NotFoundError: the catalog does not know the stream, or a group is gone: rebuild it first.
        ConflictError: the stream takes no commits, or other writers won again and again.
        CorruptDataError: the manifest itself is damaged: rebuild it first.
        InvalidInputError: a range is none.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    wanted = None if ranges is None else OffsetSet.of(ranges)
    step = _RepairStep(context, stream, replicas, lost, wanted, tell)
    waiting: list[_RepairPlan] = []
    for plan in step.look():
        if plan.repair.action is Action.LEAVE or dry_run:
            continue
        if sum(each.size for each in waiting) + plan.size > _BYTES_AT_ONCE:
            _commit(context, stream, step, waiting, branching, pause)
            waiting = []
        waiting.append(plan)
        if len(waiting) >= _AT_ONCE:
            _commit(context, stream, step, waiting, branching, pause)
            waiting = []
    _commit(context, stream, step, waiting, branching, pause)
    return step.report


class _RepairStep:
    def __init__(
        self,
        context: Context,
        stream: str,
        replicas: Sequence[Replica],
        lost: bool,
        wanted: OffsetSet | None,
        tell: Callable[[str], None],
    ) -> None:
        self._wanted = wanted
        self._context = context
        self._stream = stream
        self._replicas = replicas
        self._lost = lost
        self._tell = tell
        self._fetch = context.fetch(stream)
        self.report = RepairReport(stream)

    def look(self) -> Iterator[_RepairPlan]:
        """Plans for everything in the ranges that is not as it should be."""
        loaded = load(self._context, self._stream)
        self.report.version = loaded.item.version
        root = loaded.root
        held = OffsetSet.of([(root.first_offset, root.next_offset)] if len(root.entries) else ())
        wanted = held if self._wanted is None else self._wanted
        self.report.outside = wanted.without(held).ranges
        finder = Finder(self._context, loaded, self._replicas, self._tell)
        for leaf in _leaves_in(root, self._fetch, wanted):
            self.report.looked_at += 1
            plan = self._plan(loaded, finder, leaf)
            if plan is not None:
                self.report.repairs.append(plan.repair)
                self._tell(_in_words(plan.repair))
                yield plan

    def write(self, plan: _RepairPlan, ledger: Ledger) -> tuple[Entry, ...]:
        """PUT what replaces a fragment; the entries for it.

        Raises:
            ConflictError: the ledger does not want these offsets from the fragment's epoch.
        """
        entry = plan.repair.entry
        epoch = _epoch_of(entry, ledger)
        floor = None if epoch is None else ledger.floor(epoch)
        if epoch is None or floor is None:
            raise ConflictError(
                "the ledger refuses what should be repaired; a higher epoch has claimed it",
                stream=self._stream,
                offset=entry.first_offset,
            )
        if plan.restated is not None:
            return (plan.restated,)
        pieces: list[Entry] = []
        for run in plan.assembled.runs():
            made = fragment_of(run, plan.known, epoch=epoch, floor=floor)
            trailer = made.trailer
            new = Entry(
                trailer.first_offset,
                trailer.next_offset,
                trailer.min_timestamp,
                trailer.max_timestamp,
                EntryKind.FRAGMENT,
                len(made.data),
                min(trailer.records, MAX_RECORDS),
                epoch,
                self._context.new_uid(),
            )
            pieces.append(new)
            self._put(new, made.data, f"{new.uid:016x}-{trailer.data_crc:08x}")
        for first, next_offset in plan.assembled.missing:
            at = entry.max_timestamp
            hole = Entry(
                first, next_offset, at, at, EntryKind.HOLE, 0, 0, epoch, self._context.new_uid()
            )
            pieces.append(hole)
            self._put(hole, b"", f"{hole.uid:016x}")
        return tuple(sorted(pieces, key=lambda each: each.first_offset))

    def path(self, entry: Entry) -> str:
        """The key of a fragment or hole."""
        return entry.data_key(self._stream).path(self._context.prefix)

    def _put(self, entry: Entry, data: bytes, write_id: str) -> None:
        self._context.store.put(self.path(entry), data, write_id=write_id)

    def _plan(self, loaded: Snapshot, finder: Finder, leaf: Entry) -> _RepairPlan | None:
        """What to do about one fragment or hole; None if it is as it should be."""
        key, path = leaf.data_key(self._stream), self.path(leaf)
        floor = loaded.root.ledger.floor(leaf.epoch)
        if leaf.kind is EntryKind.HOLE:
            return self._plan_hole(finder, leaf, key, path)
        data, why = self._read(leaf, key, path)
        trailer = sound(data, key, floor)
        restated = None if trailer is None else entry_of(trailer, key)
        known = known_of(data, leaf, key)
        if restated == leaf:
            return None
        if restated is not None and why in ("", "size"):
            repair = Repair(
                leaf, path, Action.RESTATE, {OWN: len(known.records)}, (), proved=True,
                why="the manifest's entry is not what its object says",
            )  # fmt: skip
            return _RepairPlan(repair, known, Assembled((), (), proved=True), restated)
        epoch = _epoch_of(leaf, loaded.root.ledger)
        known = finder.bounded(leaf, known, leaf.epoch if epoch is None else epoch)
        assembled = assemble(known, finder.sources(leaf, known, data))
        if assembled.missing and known.chain:
            known = known.by_chain()
            assembled = assemble(known, finder.sources(leaf, known, data))
        words = "the object is gone" if why == "gone" else "the object is damaged"
        if not assembled.missing:
            action = Action.REPLACE
            if known.data_crc is not None and not assembled.proved:
                words += "; its trailer has another CRC than what was found for it"
                # Every chunk holds, and yet a byte that no chunk's CRC covers is not what it was.
                action = Action.REPLACE if self._lost else Action.LEAVE
        else:
            given_up = self._lost and self._asked_for(assembled.missing)
            action = Action.DECLARE_LOST if given_up else Action.LEAVE
        repair = Repair(
            leaf, path, action, assembled.taken_from(), assembled.missing, assembled.proved,
            why=words,
        )  # fmt: skip
        return _RepairPlan(repair, known, assembled)

    def _asked_for(self, missing: Sequence[tuple[int, int]]) -> bool:
        """Whether all that is missing lies in the ranges: more is never given up."""
        return self._wanted is None or not OffsetSet.of(missing).without(self._wanted)

    def _plan_hole(
        self, finder: Finder, leaf: Entry, key: DataKey, path: str
    ) -> _RepairPlan | None:
        """A hole over offsets that some source has: data always wins."""
        nothing = memoryview(b"")
        known = finder.bounded(leaf, known_of(nothing, leaf, key), leaf.epoch)
        assembled = assemble(known, finder.sources(leaf, known, nothing))
        if not assembled.parts:
            return None
        action = Action.DECLARE_LOST if assembled.missing else Action.REPLACE
        repair = Repair(
            leaf, path, action, assembled.taken_from(), assembled.missing,
            why="the manifest has a hole here, and some of it was found",
        )  # fmt: skip
        return _RepairPlan(repair, known, assembled)

    def _read(self, leaf: Entry, key: DataKey, path: str) -> tuple[memoryview, str]:
        """The object as far as it is there, and in a word what is wrong with that."""
        size = listed_size(self._context.store, self._context.prefix, key)
        if size is None:
            return memoryview(b""), "gone"
        if not size:
            return memoryview(b""), "empty"
        try:
            data = memoryview(self._context.store.get(path, 0, size))
        except NotFoundError:
            return memoryview(b""), "gone"
        return data, "" if size == leaf.size else "size"


def _commit(
    context: Context,
    stream: str,
    step: _RepairStep,
    plans: Sequence[_RepairPlan],
    branching: int,
    pause: Callable[[int], None],
) -> None:
    """Write what replaces the damage, and swap it in by one commit."""
    if not plans:
        return
    report = step.report
    ledger = load(context, stream).root.ledger
    changes = {plan.repair.entry: step.write(plan, ledger) for plan in plans}
    written = (step.path(n) for old, new in changes.items() for n in new if n.uid != old.uid)

    def also(done: Rebalance, valid: Swaps) -> Rebalance:
        return _with_last_chunk(done, [plan for plan in plans if plan.repair.entry in valid])

    swapped = swap(
        context,
        stream,
        changes,
        branching=branching,
        pause=pause,
        first_written=next(written, ""),
        also=also,
    )
    report.landed = report.landed or swapped.landed
    report.overtaken += swapped.overtaken
    report.version = swapped.version
    report.repairs = [
        replace(each, keys=tuple(step.path(new) for new in changes[each.entry]))
        if each.entry in changes
        else each
        for each in report.repairs
    ]


def _with_last_chunk(done: Rebalance, plans: Sequence[_RepairPlan]) -> Rebalance:
    """The root remembers the last chunk of what was found, if none behind it is remembered.

    Where a hole at the end of a manifest is filled, a claim would else compare the chunk before it.
    """
    known = done.root.last_chunk
    last = max((plan.assembled.parts[-1].chunk.header for plan in plans if plan.assembled.parts),
               key=lambda header: header.chunk_id, default=None)  # fmt: skip
    if last is None or (known is not None and known.chunk_id >= last.chunk_id):
        return done
    return replace(done, root=replace(done.root, last_chunk=LastChunk(last.chunk_id, last.epoch)))


def _epoch_of(entry: Entry, ledger: Ledger) -> int | None:
    """The epoch under which a fragment is replaced: its own, if that has the right to it.

    An epoch that nobody has ever claimed cannot be a fragment's: then the entry lies, and it is the
    epoch's that has the right.
    """
    epochs = [entry.epoch]
    if ledger.floor(entry.epoch) is None:
        epochs = [claim.epoch for claim in reversed(ledger.claims)]
    accepted = (e for e in epochs if ledger.accepts(e, entry.first_offset, entry.next_offset))
    return next(accepted, None)


def _leaves_in(root: Root, fetch: Fetch, wanted: OffsetSet) -> Iterator[Entry]:
    """Live fragments and holes that hold some of the offsets, each once, in order."""
    at = root.first_offset
    for first, next_offset in wanted.ranges:
        for leaf in leaves(root, fetch, start=max(first, at)):
            if leaf.first_offset >= next_offset:
                break
            yield leaf
            at = leaf.next_offset


def _in_words(repair: Repair) -> str:
    entry = repair.entry
    where = ", ".join(f"{count} chunks from {name}" for name, count in repair.taken.items())
    gaps = ", ".join(f"{first} to {next_offset - 1}" for first, next_offset in repair.missing)
    return (
        f"offsets {entry.first_offset} to {entry.next_offset - 1}: {repair.why}; {repair.action}"
        f" ({where or 'nothing was found'}{f'; nowhere: {gaps}' if gaps else ''})"
    )
