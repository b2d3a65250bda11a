"""The end of a history: no more trouble, so everything must come to rest, and then hold."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from coldstream.errors import ColdstreamError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.usecases import hold
from coldstream.usecases.delete_stream import undelete_stream
from coldstream.usecases.rebuild import LackingError
from coldstream.usecases.reconcile import reconcile
from coldstream.usecases.scan import ScanFor
from coldstream_devkit.simulation import workflows
from coldstream_devkit.simulation.brokers import loses_a_tail_of
from coldstream_devkit.simulation.erasing import erased_for_good
from coldstream_devkit.simulation.last_checks import arrived, nothing_leaks, reads_back, rebuilds
from coldstream_devkit.simulation.machines import Node
from coldstream_devkit.simulation.nodes import SimAgent
from coldstream_devkit.simulation.operators import SWEEP_MS, repair
from coldstream_devkit.simulation.oracle import BrokenError
from coldstream_devkit.simulation.scene import (
    BRANCHING,
    GRACE_MS,
    SETTINGS,
    Scene,
    Stream,
    replicate_all,
)

_SECONDS = 120
#: Of 100 histories that come to rest, in how many the agents are not started anew.
_LIVES_ON = 40.0
#: How long they have until they must have found out what has changed, s.
_GO_ON_SECONDS = 30
#: When an operator has read what agents say, s: what waits for a hole may turn out to be damaged.
_REPAIR_AT = (20, 60, 100)


def quiescence(scene: Scene) -> None:
    """No more trouble: everything must come to rest, and then hold."""
    scheduler = scene.scheduler
    scheduler.say("quiescence")
    scene.net.percent = scene.net.slow_percent = scene.queue.percent = 0
    scene.net.outages.clear()
    for node in scene.nodes:
        node.disk_percent = 0
    if scene.choices.chance(50):
        # What is under way may end as it would have: with conflicts, but without other trouble.
        for _ in range(3):
            scene.drain()
            scene.advance(1000)
    lives_on = scene.choices.chance(_LIVES_ON)
    for agent in scene.agents:
        if lives_on:
            scheduler.rouse(agent.owner)
        else:
            scheduler.kill(agent.owner)
    if not lives_on:
        scene.agents.clear()
    for _, owner in scene.running:
        scheduler.kill(owner)
    scene.running.clear()
    for owner in scene.lasting:
        scheduler.kill(owner)
    # Not before: a rival that ends puts back what was there before it.
    scene.before_change = None
    scene.before_upload = scene.after_answer = lambda: None
    scene.before_put = lambda key: None
    scene.drain()
    for stream in scene.streams.values():
        for replica in stream.cluster.replicas:
            replica.cut_off = False
            replica.restore_files()
            stream.cluster.start(replica, scheduler.now)
        _mends(scene, stream)
        cluster = stream.cluster
        if cluster.writer is None:
            cluster.elect(cluster.reachable)
        assert cluster.writer is not None
        replicate_all(cluster)
        if not (lives_on and scene.choices.below(2) and loses_a_tail_of(scene, cluster)):
            cluster.write(cluster.writer, scheduler.now, records=1)
            replicate_all(cluster)
    if lives_on:
        _agents_go_on(scene)
    _agents_finish(scene)
    for stream in scene.streams.values():
        _check(scene, stream)


def _mends(scene: Scene, stream: Stream) -> None:
    """Operators take up what trouble has left: holds, deletions, lost metadata, damage."""
    hold.release(scene.policies, stream.name)
    item = scene.catalog.inner.items.get(stream.name)
    if item is not None and item.state is StreamState.DELETING:
        scene.attempt(lambda: undelete_stream(scene.fresh_context(), stream.name))
    error = _reconciles(scene, stream)
    item = scene.catalog.inner.items.get(stream.name)
    current, contents = stream.oracle.current, stream.oracle.contents
    lost = current is not None and not contents.harmed.isdisjoint(
        {current.item.root_key, current.manifest.quarantine, *current.manifest.nodes}
    )
    accepted = False
    if (
        lost
        or isinstance(error, CorruptDataError)  # as it says
        or (item is not None and item.state is StreamState.REBUILDING)
        or (item is None and contents.harmed)
    ):
        accepted = _rebuilds(scene, stream)
    if accepted or contents.rotten or contents.harmed:
        scene.attempt(lambda: repair(scene, stream, lost=True, members=9))


def _reconciles(scene: Scene, stream: Stream) -> ColdstreamError | None:
    """As the schedule does, where a scan names the stream; or an operator, unasked."""
    context = scene.fresh_context()
    # One item that is lost out of a table that is whole otherwise is for people to notice.
    if scene.choices.below(2) and not scene.buckets["lost item"]:
        named = workflows.scan_all(scene, context, ScanFor.RECONCILE)
        scene.buckets["reconciled by scan"] += 1
        if stream.name not in named:
            return None
    return scene.attempt(partial(reconcile, context, stream.name, pause=scene.pause))


def _rebuilds(scene: Scene, stream: Stream) -> bool:
    """An operator has the manifest made anew; whether less than was known had to be accepted."""
    error = scene.attempt(lambda: workflows.rebuild(scene, stream))
    accepted = isinstance(error, LackingError)
    if accepted:
        # First what others have PUT is taken away. The oracle knows whether the rest is lost.
        strays = stream.oracle.contents.strays
        scene.objects.delete(sorted(strays))
        strays.clear()
        scene.buckets["less accepted"] += 1
        error = scene.attempt(lambda: workflows.rebuild(scene, stream, accept_less=True))
        if isinstance(error, LackingError) and error.remedy:  # as it says
            data = [k for k in scene.objects.objects if f"/{stream.name}/data/" in k]
            scene.objects.delete(data)
            scene.buckets["moved away"] += 1
    scene.buckets["rebuilt after loss" if error is None else "rebuild refused"] += 1
    return accepted


def _agents_go_on(scene: Scene) -> None:
    """What an agent believes is from before the trouble: it must find out, or say what hinders it.

    One that begins would know better, and one that stands by act in its place.
    """
    streams = [
        stream
        for stream in scene.streams.values()
        if stream.cluster.writer is not None
        and _lives(scene, scene.node_of(stream.cluster.writer))
        and stream.name in scene.catalog.inner.items
    ]
    writers = {s.cluster.writer.name for s in streams if s.cluster.writer is not None}
    for agent in [each for each in scene.agents if each.node.name not in writers]:
        scene.scheduler.kill(agent.owner)
        scene.agents.remove(agent)
    scene.buckets["agents live on"] += bool(streams)
    for _ in range(_GO_ON_SECONDS):
        scene.drain()
        scene.advance(1000)
        if all(_has_arrived(scene, stream) or _told(scene, stream) for stream in streams):
            return
    for stream in streams:
        if not _told(scene, stream):
            arrived(stream.oracle, stream.cluster, ["nothing"])


def _told(scene: Scene, stream: Stream) -> bool:
    """Whether an agent says what hinders it."""
    rows = [row for agent in scene.agents for row in agent.progress()]
    return any(row.stream == stream.name and row.error is not None for row in rows)


def _agents_finish(scene: Scene) -> None:
    """The writer's agent, once or for good, and a little later all, until all has arrived."""
    writers = {stream.cluster.writer.name for stream in scene.streams.values()
               if stream.cluster.writer is not None}  # fmt: skip
    ending = scene.choices.below(2) == 1
    for node in scene.nodes:
        if node.name in writers and not _lives(scene, node):
            scene.start_agent(node, replace(SETTINGS, once=True) if ending else SETTINGS)
    for second in range(_SECONDS):
        scene.drain()
        scene.advance(1000)
        for stream in scene.streams.values():
            item = scene.catalog.inner.items.get(stream.name)
            if item is not None and item.state is StreamState.REBUILDING:
                scene.attempt(partial(workflows.rebuild, scene, stream))
            if item is not None and item.state is StreamState.DELETING:  # asked for long ago
                scene.attempt(partial(undelete_stream, scene.fresh_context(), stream.name))
        if second == 12:
            # Only another member may have what the writer's own log has lost.
            for node in scene.nodes:
                if not _lives(scene, node):
                    scene.start_agent(node)
        if second in _REPAIR_AT:
            _restart_those_that_say_so(scene)
            for stream in scene.streams.values():
                if stream.oracle.contents.rotten:  # as an agent's error says
                    scene.attempt(partial(repair, scene, stream, lost=True, members=9))
        if _all_arrived(scene):
            scene.drain()
            if _all_arrived(scene):  # what was on its way may have cut off what had arrived
                return


def _restart_those_that_say_so(scene: Scene) -> None:
    """What an agent holds, and nobody else has, may be damaged: it lets go of it by a restart."""

    def says_so(agent: SimAgent) -> bool:
        return any("this agent holds it open" in str(row.error) for row in agent.progress())

    for agent in [each for each in scene.agents if says_so(each)]:
        scene.scheduler.kill(agent.owner)
        scene.agents.remove(agent)
        scene.start_agent(agent.node)


def _lives(scene: Scene, node: Node) -> bool:
    """Whether a node has an agent that goes on."""
    return any(
        each.node is node and not each.ended and not each.settings.once for each in scene.agents
    )


def _is_deleted(scene: Scene, stream: Stream) -> bool:
    item = scene.catalog.inner.items.get(stream.name)
    return item is not None and item.state is StreamState.DELETED


def _all_arrived(scene: Scene) -> bool:
    return all(_has_arrived(scene, stream) for stream in scene.streams.values())


def _has_arrived(scene: Scene, stream: Stream) -> bool:
    if _is_deleted(scene, stream):
        return True
    try:
        arrived(stream.oracle, stream.cluster, ())
    except BrokenError:
        return False
    return True


def _check(scene: Scene, stream: Stream) -> None:
    if _is_deleted(scene, stream):
        return
    oracle = stream.oracle
    errors = [
        str(row.error)
        for agent in scene.agents
        for row in agent.progress()
        if row.stream == stream.name
    ]
    arrived(oracle, stream.cluster, errors)
    current = oracle.current
    if current is None:
        return
    store, catalog = scene.objects, scene.catalog.inner
    thorough = scene.choices.below(8)  # the rest takes as long as all before it
    if thorough and not oracle.contents.erased.by_epoch:
        if thorough < 3:
            reads_back(store, catalog, oracle)
        return
    for agent in scene.agents:
        scene.scheduler.kill(agent.owner)
    erased_for_good(scene, stream)
    for _ in range(5):
        scene.scheduler.now += 2 * GRACE_MS + SWEEP_MS
        try:
            workflows.collect(scene, stream)
        except (CorruptDataError, NotFoundError) as exc:
            if exc.key in oracle.contents.harmed:
                return  # told; without what was lost nothing can be proved
            raise
    nothing_leaks(store, oracle)
    reads_back(store, catalog, oracle)
    rebuilds(scene.fresh_context(), oracle, branching=BRANCHING)
