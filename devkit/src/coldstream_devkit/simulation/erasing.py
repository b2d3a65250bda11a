"""Erasures: an operator erases messages, the machine's step deletes what still has them."""

from __future__ import annotations

from functools import partial

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.invariants import Invariant, Violation
from coldstream.names import erasure_prefix, parse_data_key
from coldstream.osiris.offsets import OffsetSet
from coldstream.usecases import erase as erasing
from coldstream.usecases import purge as purging
from coldstream_devkit.simulation.erased import ErasedMessages
from coldstream_devkit.simulation.last_checks import chunks_of, kept_by_records
from coldstream_devkit.simulation.oracle import BrokenError, Oracle
from coldstream_devkit.simulation.reading import MisreadError, data_of
from coldstream_devkit.simulation.scene import BRANCHING, TIMEOUT_MS, Scene, Stream

_TRIES = 4


def erases(scene: Scene) -> bool:
    """Somebody's messages are erased: a few offsets of the manifest, or what was begun before."""
    stream = scene.pick()
    current = stream.oracle.current
    if current is None or not current.manifest.leaves:
        return False
    first, next_offset = current.manifest.first, current.manifest.next
    count = scene.choices.one_of((1, 1, 3, 12, 0))
    begin = first + scene.choices.below(max(1, next_offset - first))
    ranges = [(begin, min(begin + count, next_offset))] if count else []
    scene.spawn("erase", lambda: erase(scene, stream, ranges))
    return True


def erase(scene: Scene, stream: Stream, ranges: list[tuple[int, int]]) -> erasing.ErasureReport:
    """As `coldstream erase`, without the machine."""
    policies, _ = scene.policies.load()
    report = erasing.erase(
        scene.fresh_context(),
        stream.name,
        OffsetSet.of(ranges),
        policies,
        reason="",
        now_ms=scene.scheduler.now,
        branching=BRANCHING,
        pause=scene.pause,
    )
    scene.buckets["fragments erased"] += len(report.written)
    return report


def purges(scene: Scene) -> bool:
    """A step of the machine runs; the next one goes on where it was, if there is time."""
    stream = scene.pick()
    left = scene.time_left()
    scene.spawn("purge", lambda: purge(scene, stream, left))
    return True


def purge(scene: Scene, stream: Stream, left: object = None) -> purging.Purge:
    """A pass over all versions, in as many steps as it takes."""
    progress = purging.Progress()
    while True:
        policies, _ = scene.policies.load()
        done = purging.purge(
            scene.fresh_context(),
            scene.store,
            stream.name,
            policies,
            progress=progress,
            pause=scene.pause,
            time_left=left if callable(left) else lambda: True,
        )
        scene.buckets["versions purged"] += done.versions
        if done.state is not purging.PurgeState.PURGING:
            return done
        progress = done.progress


def erased_for_good(scene: Scene, stream: Stream) -> None:
    """What was asked for is finished; then nothing that may go still has what was erased.

    Raises:
        BrokenError: something has.
    """
    oracle = stream.oracle
    item = scene.catalog.inner.items.get(stream.name)
    asked = _asked_for(oracle, stream)
    if not asked.by_epoch or item is None or item.state is not StreamState.LIVE:
        return
    try:
        report = erase(scene, stream, [])
        for _ in range(_TRIES):
            scene.scheduler.now += 2 * TIMEOUT_MS
            purge(scene, stream)
    except ColdstreamError as exc:
        if oracle.contents.harmed and not isinstance(exc, InvalidInputError):
            return  # without what was lost nothing can be proved
        raise
    if report.damaged and not oracle.contents.harmed:
        raise BrokenError([Violation(Invariant.DURABILITY, f"{report.damaged[0]}")])
    scene.buckets["erased for good"] += 1
    _nothing_is_left(oracle, asked)


def _asked_for(oracle: Oracle, stream: Stream) -> ErasedMessages:
    """What was erased, but for that whose record a disaster has taken: nobody knows of it."""
    harmed, objects = oracle.contents.harmed, oracle.objects.objects
    records = erasure_prefix(oracle.prefix, stream.name)
    if not any(key.startswith(records) for key in harmed):
        return oracle.contents.erased
    known = ErasedMessages()
    for key, data in objects.items():
        if key.startswith(records) and key not in harmed:
            known.recorded(data)
    return known


def _nothing_is_left(oracle: Oracle, asked: ErasedMessages) -> None:
    assert oracle.current is not None
    manifest, contents = oracle.current.manifest, oracle.contents
    kept = partial(kept_by_records, oracle)()
    there = chunks_of(oracle)
    for key, chunks in contents.chunks.items():
        if key not in oracle.objects.objects or key in contents.harmed or not chunks:
            continue
        left = _left(oracle, key, asked)
        if not left:
            continue
        if key not in oracle.current.keys and (
            key in kept
            or parse_data_key(key, oracle.prefix).next_offset > manifest.next
            or not there.issuperset(chunks)
        ):
            continue  # nobody may delete it: it is told
        raise BrokenError(
            [Violation(Invariant.DURABILITY, "erased, and still there", left[0], key=key)]
        )


def _left(oracle: Oracle, key: str, asked: ErasedMessages) -> list[int]:
    """Offsets that were erased and that an object still has."""
    found: list[int] = []
    try:
        body, at = data_of(oracle.objects.objects[key]), 0
    except MisreadError:
        return []
    for chunk_id, epoch in oracle.contents.chunks[key]:
        size = len(oracle.cluster.written[chunk_id, epoch].data)
        found += asked.still_there(body[at : at + size], epoch, chunk_id)
        at += size
    return found
