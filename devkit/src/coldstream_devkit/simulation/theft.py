"""After a history has come to rest: a thief of an agent's credentials, and an operator who undoes.

It is played on a copy of the bucket and the table, so that no oracle of the history has to tell
lies from truth: what every manifest had before the theft is the truth. The thief claims with a
made-up log, uploads made-up fragments, and comes back while he is undone; the undo takes days, in
which `collect` runs, and dies between any two calls, before or after one has had its effect. In the
end every chunk that was there before can be read, byte for byte, and nothing that the thief has
made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coldstream.agent.stream.commits import Commits
from coldstream.errors import ConflictError, InvalidInputError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.entries import EntryKind
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.manifest.tree import leaves
from coldstream.names import MAX_EPOCH
from coldstream.osiris.chunk import iter_chunks
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.undo_epoch import MAX_LEAP
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.claim_function import OwnRights
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.undo import plan_undo, undo
from coldstream_devkit.fragments import build_fragment
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.points import Place
from coldstream_devkit.simulation.reading import data_of
from coldstream_devkit.simulation.scene import GRACE_MS, PREFIX, Scene, Stream
from coldstream_devkit.simulation.scheduler import Crash

#: A chunk of a manifest: (epoch, chunk id, next offset).
Identity = tuple[int, int, int]

_TRIES = 12
#: Calls of an undo within which something happens.
_CALLS = 40


def theft(scene: Scene, stream: Stream) -> bool:
    """Play it for one stream; whether there was something to steal.

    Raises:
        BrokenError: something that was durable is gone, or something made up has stayed.
    """
    item = scene.catalog.inner.items.get(stream.name)
    if (
        item is None
        or item.state is not StreamState.LIVE
        or not item.ledger.claims
        or item.epoch > MAX_EPOCH // 2
        # What the world has damaged is no truth to be compared with.
        or stream.oracle.contents.harmed
    ):
        return False
    place = Place(scene.objects, scene.catalog.inner, lambda: scene.scheduler.now).copy()
    played = _Theft(scene, stream.name, place)
    if not played.truth:
        return False
    played.play()
    return True


class _Theft:
    """One theft, and its undoing.

    Args:
        scene: draws choices, counts events.
        stream: directory name.
        place: the copy that it is played on.
    """

    def __init__(self, scene: Scene, stream: str, place: Place) -> None:
        self.scene, self.choices = scene, scene.choices
        self.stream, self.place = stream, place
        self.truth = self._chunks()
        self.next_offset = load(self._context(), stream).root.next_offset
        self.floors: dict[int, int] = {}  # of false claims, by their epochs
        self._uid = 2**63

    def play(self) -> None:
        """Steal, undo, come too late, go on."""
        before = load(self._context(), self.stream)
        by_claims = self.choices.below(3) > 0
        for _ in range(1 + self.choices.below(3)):
            if by_claims:
                self._claims()
            if not by_claims or self.choices.below(2):
                self._forges()
        shift = self._undone(by_claims)
        last = before.root.ledger.claims[-1]
        late = [(last.epoch, last.floor)]
        late += self.floors.items()
        for epoch, floor in late:  # what was on its way comes now
            self._put(load(self._context(), self.stream).root.next_offset, epoch, floor)
        self._check("after the undo")
        self._goes_on(before.item.epoch - before.root.shift, shift)
        self._check("after the next claim")

    # --- the thief ---

    def _claims(self) -> None:
        """Claim for an epoch that is not too high, by a log that forks off somewhere."""
        loaded = load(self._context(), self.stream)
        known = sorted(self._chunks(), key=lambda each: each[1])
        if not known:
            return
        epoch, chunk_id, next_offset = self.choices.one_of(known)
        claimed = loaded.item.epoch + 1 + self.choices.below(MAX_LEAP)
        log = KnownHistory(
            (
                LocalChunk(chunk_id, next_offset, epoch),
                LocalChunk(next_offset, next_offset + 1 + self.choices.below(9), claimed),
            )
        )
        self._commits().claim(
            claimed, 0, QueueName(), log, lambda begin, end: None, shift=loaded.root.shift
        )
        self.floors[claimed] = load(self._context(), self.stream).root.ledger.floor(claimed) or 0
        self.scene.buckets["false claim"] += 1

    def _forges(self) -> None:
        """Upload at the end of the manifest what no broker has written."""
        root = load(self._context(), self.stream).root
        last = root.ledger.claims[-1]
        self._put(root.next_offset, last.epoch, last.floor)
        self.scene.buckets["forged fragment"] += 1

    def _put(self, first: int, epoch: int, floor: int) -> None:
        self._uid += 1
        made = build_fragment(
            first,
            first + 1 + self.choices.below(30),
            stream=self.stream,
            epoch=epoch,
            floor=floor,
            uid=self._uid,
            records_per_chunk=7,
            timestamps=[self.scene.scheduler.now],
            body=lambda offset: b"forged %d" % offset,
        )
        self.place.store.put(made.path(PREFIX), made.data, write_id=str(self._uid))
        commit_runs(self._context(), self.stream, pause=_no_pause, thorough=True)

    # --- the operator ---

    def _undone(self, by_claims: bool) -> int:
        """Undo until it is done, whatever dies and whoever comes back; the shift that it gives."""
        shift = load(self._context(), self.stream).root.shift
        named = self._since(shift)
        for number in range(_TRIES):
            context = self._context(self._trouble() if number < _TRIES - 1 else None)
            try:
                self._undo(context, named if by_claims else ())
            except Crash:
                self.scene.buckets["undo dies"] += 1
            except (ConflictError, InvalidInputError):
                if named == self._since(shift):
                    raise
                self.scene.buckets["undo meets the thief"] += 1
            after = load(self._context(), self.stream).root
            if after.shift != shift:
                # A claim that came after the undo's is another theft, which is undone like the
                # first.
                shift, by_claims = after.shift, True
                named = self._since(shift)
                if not named:
                    break
                self.scene.buckets["second theft"] += 1
            else:
                by_claims = by_claims or len(self._since(shift)) > len(named)
                named = self._since(shift)
        else:
            raise _broken("an undo that never lands")
        # One that died after its claim is finished by whoever commits next.
        commit_runs(self._context(), self.stream, pause=_no_pause, thorough=True)
        self.scene.buckets["undone"] += 1
        return shift

    def _since(self, shift: int) -> list[int]:
        """The false claims since the last undo: their epochs are above what it has set.

        Of several with one floor a long ledger keeps the newest, and nobody can name the others.
        """
        there = {each.epoch for each in load(self._context(), self.stream).root.ledger.claims}
        return [each for each in self.floors if each > shift and each in there]

    def _undo(self, context: Context, named: Sequence[int]) -> None:
        plan = plan_undo(
            context,
            self.stream,
            false_claims=tuple(named),
            offset=None if named else self.next_offset,
        )
        store: Any = context.store  # also the bucket's composer
        takes_long = self.scene.scheduler.steps % 2 == 0

        def copied(_: int) -> None:
            nonlocal takes_long
            if takes_long:
                takes_long = False
                self._collects()

        done = undo(
            context, store, plan, pause=_no_pause, now_ms=self.scene.scheduler.now, progress=copied
        )
        if done.left:
            raise _broken(f"an undo could not put back {done.left[0]}")

    def _trouble(self) -> Callable[[], bool] | None:
        """What happens at one of the next calls, if anything; whether the call goes wrong."""
        kind = self.choices.below(4)
        if not kind:
            return None
        left = self.choices.below(_CALLS)

        def at_a_call() -> bool:
            nonlocal left
            left -= 1
            if left:
                return False
            if kind > 1 or not self.floors:
                return True
            self._claims()  # the thief has his credentials still
            return False

        return at_a_call

    def _collects(self) -> None:
        """Days pass, and `collect` goes over the stream on each of them."""
        for _ in range(3):
            self.scene.scheduler.now += 2 * GRACE_MS
            now = self.scene.scheduler.now
            collect(
                self._context(), self.place.store, self.stream, grace_ms=GRACE_MS, run_ms=now,
                now_ms=now, held=lambda _: False,
            )  # fmt: skip
        self.scene.buckets["collect beside an undo"] += 1

    def _goes_on(self, broker_epoch: int, shift: int) -> None:
        """The true writer's next election: its log has what was there."""
        context = self._context()
        chunks = sorted(self.truth, key=lambda each: each[1])[-3:]
        log = KnownHistory(tuple(LocalChunk(first, end, epoch) for epoch, first, end in chunks))
        self._commits().claim(
            max(1, broker_epoch + 1) + shift,
            0,
            QueueName(),
            log,
            lambda begin, end: None,
            shift=load(context, self.stream).root.shift,
        )

    # --- the oracle ---

    def _check(self, when: str) -> None:
        found = self._chunks()
        lost = [each for each, data in self.truth.items() if found.get(each) != data]
        if lost:
            raise _broken(f"{when} {len(lost)} chunks are gone that were durable, {lost[0]} first")
        made_up = found.keys() - self.truth.keys()
        if made_up:
            raise _broken(f"{when} a made-up chunk is in the manifest: {min(made_up)}")

    def _chunks(self) -> dict[Identity, bytes]:
        """What the manifest has, chunk by chunk."""
        context = self._context()
        root = load(context, self.stream).root
        found = {}
        for leaf in leaves(root, context.fetch(self.stream)):
            if leaf.kind is EntryKind.HOLE:
                continue
            body = data_of(self.place.store.objects[leaf.data_key(self.stream).path(PREFIX)])
            for chunk in iter_chunks(body, 0):
                head = chunk.header
                if head.next_offset > root.first_offset:
                    found[head.epoch, head.chunk_id, head.next_offset] = bytes(chunk.buffer)
        return found

    def _commits(self) -> Commits:
        context = self._context()
        function = OwnRights(context, _no_pause, lambda: self.scene.scheduler.now)
        return Commits(context, function, self.stream, _no_pause)

    def _context(self, trouble: Callable[[], bool] | None = None) -> Context:
        store: Any = self.place.store
        catalog: Any = self.place.catalog
        if trouble is not None:
            after = bool(self.choices.below(2))
            store, catalog = (_Troubled(each, trouble, after) for each in (store, catalog))
        return Context(store, catalog, PREFIX, self.scene.new_uid, pool=Inline)


class _Troubled:
    """A port at whose calls something happens.

    Args:
        port: the port.
        trouble: called at each call; True if whoever calls is gone.
        after: whether the call still has its effect then.
    """

    def __init__(self, port: Any, trouble: Callable[[], bool], after: bool) -> None:
        self._port, self._trouble, self._after = port, trouble, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*given: Any, **named: Any) -> Any:
            gone = self._trouble()
            if gone and self._after:
                method(*given, **named)
            if gone:
                raise Crash
            return method(*given, **named)

        return call


def _no_pause(attempt: int) -> None:
    del attempt


def _broken(message: str) -> BrokenError:
    return BrokenError([Violation(Invariant.DURABILITY, message)])
