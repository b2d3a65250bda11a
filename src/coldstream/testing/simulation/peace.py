"""The end of a history: no more trouble, so everything must come to rest, and then hold."""

from __future__ import annotations

from coldstream.manifest.catalog import StreamState
from coldstream.testing.simulation.cluster import Replica
from coldstream.testing.simulation.last_checks import arrived, nothing_leaks, reads_back, rebuilds
from coldstream.testing.simulation.oracle import BrokenError
from coldstream.testing.simulation.scene import BRANCHING, GRACE_MS, PREFIX, STREAM, Scene
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.reconcile import reconcile


def peace(scene: Scene) -> None:
    """No more trouble: everything must come to rest, and then hold."""
    scene.scheduler.say("peace")
    scene.net.percent = 0
    scene.event_percent = 0
    cluster = scene.cluster
    for replica in cluster.replicas:
        replica.cut_off = False
        cluster.start(replica, scene.scheduler.now)
    for agent in scene.agents:
        scene.scheduler.kill(agent.owner)
    scene.agents.clear()
    for _, owner in scene.running:
        scene.scheduler.kill(owner)
    scene.running.clear()
    scene.drain()
    _finish_rebuild(scene)
    scene.attempt(lambda: reconcile(scene.world(), STREAM, pause=scene.pause))
    if cluster.writer is None:
        cluster.elect(cluster.reachable)
    writer = cluster.writer
    assert writer is not None
    cluster.write(writer, scene.scheduler.now, records=1)
    scene.replicate_all()
    scene.start_agent(writer)
    for second in range(120):
        scene.drain()
        scene.advance(1000)
        _finish_rebuild(scene)
        if second == 12:
            # Only another member may have what the writer's own log has lost.
            for replica in cluster.replicas:
                if replica is not writer:
                    scene.start_agent(replica)
        if _has_arrived(scene, writer):
            break
    scene.drain()
    _checks(scene, writer)


def _finish_rebuild(scene: Scene) -> None:
    """A rebuild that died, or whose first write came late, is made again, as its error says."""
    item = scene.catalog.inner.items.get(STREAM)
    if item is not None and item.state is StreamState.REBUILDING:
        scene.attempt(lambda: rebuild(scene.world(), STREAM, branching=BRANCHING, dry_run=False))


def _has_arrived(scene: Scene, writer: Replica) -> bool:
    try:
        arrived(scene.oracle, scene.oracle.current, writer, ())
    except BrokenError:
        return False
    return True


def _checks(scene: Scene, writer: Replica) -> None:
    errors = [str(each.follower.progress.error) for each in scene.agents]
    current = scene.oracle.current
    arrived(scene.oracle, current, writer, errors)
    if current is None:
        return
    store, catalog = scene.objects, scene.catalog.inner
    if scene.choices.below(3):  # the rest takes as long as all before it
        reads_back(store, catalog, scene.cluster, current, PREFIX)
        return
    for agent in scene.agents:
        scene.scheduler.kill(agent.owner)
    for _ in range(5):
        scene.scheduler.now += 2 * GRACE_MS
        scene.collect()
    current = scene.oracle.current or current
    nothing_leaks(store, scene.oracle, current)
    reads_back(store, catalog, scene.cluster, current, PREFIX)
    rebuilds(scene.world(), current, branching=BRANCHING)
