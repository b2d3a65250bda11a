"""What operators do: repair, give up quarantined data, delete and undelete, hold, name."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.usecases import delete_stream as deleting
from coldstream.usecases import hold as holding
from coldstream.usecases import quarantine as quarantining
from coldstream.usecases import repair as repairing
from coldstream_devkit.simulation.cluster import Replica
from coldstream_devkit.simulation.scene import BRANCHING, GRACE_MS, Scene, Stream

_UNDELETE_MS = 20_000


class BrokerCopy:
    """`usecases.repair_sources.Replica` over a member's log.

    Args:
        replica: the member.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def name(self) -> str:
        """For messages."""
        return self._replica.name

    def chunks(self, first: int, next_offset: int) -> Iterator[Chunk]:
        """Committed chunks that begin in offsets [first, next_offset)."""
        for chunk in list(self._replica.chunks()):
            if first <= chunk.chunk_id < next_offset and chunk.next_offset <= (
                self._replica.committed
            ):
                yield from iter_chunks(chunk.data, 0)

    def epoch_of(self, chunk_id: int) -> int | None:
        """Epoch of the chunk with this id."""
        chunk = self._replica.chunk_at(chunk_id)
        return None if chunk is None else chunk.epoch


def repairs(scene: Scene, stream: Stream | None = None) -> str:
    """Repair a stream from what the bucket and some members have; perhaps give up what is lost."""
    chosen = stream or scene.pick()
    lost = bool(scene.choices.below(2))
    few = scene.choices.below(3)
    return scene.spawn("repair", lambda: repair(scene, chosen, lost=lost, members=few))


def repair(scene: Scene, stream: Stream, *, lost: bool, members: int) -> object:
    """As `coldstream repair`, with so many members' copies."""
    copies = [BrokerCopy(each) for each in stream.cluster.replicas if each.up][:members]
    report = repairing.repair(
        scene.fresh_context(),
        stream.name,
        ranges=None,
        replicas=copies,
        lost=lost,
        branching=BRANCHING,
        pause=scene.pause,
    )
    if report.landed:
        scene.buckets["repaired"] += 1
    return report


def drops(scene: Scene) -> bool:
    """An operator gives up what a claim cut off."""
    stream = scene.pick()
    current = stream.oracle.current
    if current is None or not current.manifest.quarantine:
        return False
    epoch = scene.choices.one_of([epoch for epoch, _ in current.manifest.ledger])

    def act() -> object:
        done = quarantining.drop(scene.fresh_context(), stream.name, epoch, pause=scene.pause)
        if done.landed:
            stream.oracle.give_up(done.change.floor)
            scene.buckets["dropped"] += 1
        return done

    scene.spawn("drop", act)
    return True


def deletes(scene: Scene) -> None:
    """A queue is gone: its stream gets a tombstone, and is swept when the undelete time is over."""
    stream = scene.pick()

    def act() -> object:
        policies, revision = scene.policies.load()
        return deleting.delete_stream(
            scene.context(),
            stream.name,
            policies,
            now_ms=scene.scheduler.now,
            undelete_ms=_UNDELETE_MS,
            rules_revision=revision,
        )

    scene.spawn("delete", act)


def undeletes(scene: Scene) -> bool:
    """A deletion is called off."""
    stream = _in_state(scene, StreamState.DELETING)
    if stream is None:
        return False
    scene.spawn("undelete", lambda: deleting.undelete_stream(scene.context(), stream.name))
    return True


def sweeps(scene: Scene) -> bool:
    """A step of the deletion runs."""
    stream = _in_state(scene, StreamState.DELETING) or _in_state(scene, StreamState.DELETED)
    if stream is None:
        return False
    item = scene.catalog.inner.items[stream.name]
    begun = item.state is StreamState.DELETING
    empty = scene.choices.below(2)
    left = scene.time_left()

    def act() -> object:
        policies, revision = scene.policies.load()
        return deleting.sweep(
            scene.context(),
            scene.store,
            stream.name,
            policies,
            revision=item.revision if begun else item.revision - 1,
            empty=empty,
            now_ms=scene.scheduler.now,
            time_left=left,
            rules_revision=revision,
        )

    scene.spawn("sweep", act)
    return True


def holds(scene: Scene) -> None:
    """A legal hold is set, or taken away."""
    name = scene.pick().name
    if scene.choices.below(2):
        scene.spawn("release", lambda: holding.release(scene.policies, name))
    else:
        scene.spawn("hold", lambda: holding.hold(scene.policies, name))


def names(scene: Scene) -> None:
    """A person corrects the name of a queue."""
    name = scene.pick().name
    scene.spawn(
        "name",
        lambda: scene.catalog.set_name(name, _any_name(name, scene.new_uid())),
    )


def _any_name(stream: str, drawn: int) -> QueueName:
    """One of a few names, some of them of partitions."""
    queue = f"{stream}.{drawn % 9}"
    return QueueName("c", "/", queue, "all", queue) if drawn % 2 else QueueName("c", "/", queue)


def _in_state(scene: Scene, state: StreamState) -> Stream | None:
    for stream in scene.streams.values():
        item = scene.catalog.inner.items.get(stream.name)
        if item is not None and item.state is state:
            return stream
    return None


#: Longer than any workflow of a deletion takes, when nothing stops it.
SWEEP_MS = _UNDELETE_MS + GRACE_MS
