"""One history: a while of trouble, decided by a seed, then quiescence, then the last checks.

Every history begins on a tree that an earlier one has left. It has a theme, and its own mixture of
what belongs to the theme, so that some go deep where others go wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache

from coldstream_devkit.simulation import brokers, erasing, harm, operators, strays, workflows
from coldstream_devkit.simulation.choices import Choices
from coldstream_devkit.simulation.conflicts import hang, linger, rewrite, seek
from coldstream_devkit.simulation.limits import small
from coldstream_devkit.simulation.quiescence import quiescence
from coldstream_devkit.simulation.scene import SECOND, STREAM, Scene, Shape, replicate_all
from coldstream_devkit.simulation.theft import theft

#: Things that happen in a history, before quiescence.
ACTIONS = 40

#: Of 100 histories, how many have small limits, and how many come to rest.
_SMALL = 40.0
_PEACE = 65.0
#: In how many every node has an agent from the beginning, as it should be.
_EVERYWHERE = 30.0
#: Of those that come to rest, how many are stolen from then.
_THEFT = 25.0

Act = Callable[[Scene], object]
#: What may happen, how often, and how.
Table = list[tuple[str, int, Act]]


def play(choices: Choices, scene: Scene, *, actions: int = ACTIONS) -> None:
    """Play a whole history.

    Args:
        choices: decide everything, as they have decided the scene.
        scene: where it is played, from `set_up`.
        actions: how many things happen before quiescence.

    Raises:
        BrokenError: an invariant does not hold.
    """
    scene.take_over(prehistory(scene.shape))
    themes = [choices.one_of(list(_THEMES))]
    if choices.chance(50):
        themes.append(choices.one_of(list(_THEMES)))
    scene.buckets.update(f"theme {theme}" for theme in themes)
    if choices.chance(_SECONDS.get(themes[0], 10)):
        scene.add_stream(SECOND)
        scene.buckets["second stream"] += 1
    scene.net.percent = choices.one_of((0.0, 2.0, 8.0))
    scene.net.slow_percent = choices.one_of((0.0, 0.0, 4.0))
    scene.queue.percent = choices.one_of((0.0, 15.0, 60.0))
    seek(scene, choices.one_of((0.0, 30.0, 80.0)))
    if not {"holes", "brokers", "garbage"}.isdisjoint(themes):
        hang(scene, choices.one_of((0.0, 15.0, 40.0)))
        linger(scene, choices.one_of((0.0, 10.0, 30.0)))
    if "brokers" in themes:
        rewrite(scene, choices.one_of((0.0, 20.0, 60.0)))
    table = _table(choices, [_THEMES[theme] for theme in themes])
    scene.loses_items = not _LOSE_ITEMS.isdisjoint(name for name, _, _ in table)
    limited = choices.chance(_SMALL)
    scene.buckets["small limits"] += limited
    with small(scene.page_size) if limited else nullcontext():
        _plays(choices, scene, table, actions)


def _plays(choices: Choices, scene: Scene, table: Table, actions: int) -> None:
    everywhere = choices.chance(_EVERYWHERE)
    try:
        for stream in scene.streams.values():
            writer = stream.cluster.writer or stream.cluster.elect(stream.cluster.reachable)
            for replica in stream.cluster.replicas:
                node = scene.node_of(replica)
                here = replica is writer or everywhere or choices.below(4) == 3
                if here and not any(each.node is node for each in scene.agents):
                    scene.start_agent(node)
        for _ in range(actions):
            _act(choices, scene, table)
        # What must always hold is checked by now; quiescence takes twice as long as the trouble.
        if choices.chance(_PEACE):
            scene.buckets["quiescence"] += 1
            quiescence(scene)
            if choices.chance(_THEFT):
                for stream in scene.streams.values():
                    theft(scene, stream)
    finally:
        scene.scheduler.close()


def set_up(choices: Choices, trace: Callable[[str], None] | None = None) -> Scene:
    """Machines and AWS in which nothing has happened yet.

    Args:
        choices: decide everything.
        trace: told of everything, or None.
    """
    shape = Shape(
        choices.one_of((3, 3, 5)), choices.one_of((6, 3, 20)), choices.one_of((1, 2, 3, 4, 5, 0))
    )
    return Scene(choices, shape, trace, page_size=choices.one_of((1000, 3, 8)))


def _table(choices: Choices, themes: list[Mapping[str, int]]) -> Table:
    """What may happen in this history, and how often."""
    found = []
    for name, weight, act in _ACTIONS:
        often = max(theme.get(name, weight) for theme in themes)
        if name not in _ALWAYS:
            often *= 1 + choices.below(2) if name in themes[0] else choices.below(3)
        if often:
            found.append((name, often, act))
    return found


def _act(choices: Choices, scene: Scene, table: Table) -> None:
    """Let a task go on, or have something else happen."""
    if scene.scheduler.ready and choices.below(2):
        scene.scheduler.step()
        return
    name, _, act = table[choices.weighted([weight for _, weight, _ in table])]
    if act(scene) is not False:
        scene.buckets[name] += 1


@cache
def prehistory(shape: Shape) -> Scene:
    """A while in which all goes well, so that there is something for the trouble to come."""
    scene = Scene(Choices(0, replay=[]), shape, None)
    cluster = scene.streams[STREAM].cluster
    if shape.past == 0:
        return scene
    writer = cluster.elect(cluster.reachable)
    assert writer is not None
    scene.start_agent(scene.node_of(writer))
    for round_ in range(1 + shape.past % 3):
        if round_ and shape.past >= 3:
            _changes(scene, shape.past)
        for number in range(14):
            leader = cluster.writer
            assert leader is not None
            cluster.write(leader, scene.scheduler.now, records=1 + number % 3)
        replicate_all(cluster)
        for _ in range(5):
            scene.advance(1000)
            scene.drain()
        if shape.past != 2:  # else there is much to group, and whoever begins has to
            workflows.rebalances(scene)
            scene.drain()
        if shape.past == 5:
            workflows.consolidates(scene)
            scene.drain()
    scene.scheduler.close()
    return scene


def _changes(scene: Scene, past: int) -> None:
    """Another writer; or local retention takes what was never uploaded; or the cluster forgets."""
    cluster = scene.streams[STREAM].cluster
    writer = cluster.writer
    assert writer is not None
    if past == 4:
        for agent in scene.agents:
            scene.scheduler.kill(agent.owner)
        scene.agents.clear()
        for number in range(2 * cluster.segment_chunks + 2):
            cluster.write(writer, scene.scheduler.now, records=1 + number % 2)
        replicate_all(cluster)
        brokers.retires_hard(scene)
    elif past == 5:
        for number in range(4):
            cluster.write(writer, scene.scheduler.now, records=1 + number % 2)
        replicate_all(cluster)
        for _ in range(4):
            scene.advance(1000)
            scene.drain()
        for replica in cluster.replicas:
            cluster.stop(replica, keep=max(replica.begin, replica.tail - 5))
            cluster.start(replica, scene.scheduler.now)
        cluster.elect(cluster.reachable)
    else:
        cluster.elect(cluster.reachable)
    replicate_all(cluster)
    writer = cluster.writer
    assert writer is not None
    if not any(agent.node.name == writer.name for agent in scene.agents):
        scene.start_agent(scene.node_of(writer))


#: Name, weight, what; a theme changes weights. The first one is always possible.
_ACTIONS: tuple[tuple[str, int, Act], ...] = (
    ("time passes", 20, workflows.waits),
    ("days pass", 0, workflows.days_pass),
    ("all goes on", 4, workflows.all_goes_on),
    ("chunks are written", 16, brokers.writes),
    ("replicas copy", 20, brokers.replicates),
    ("election", 2, brokers.elects),
    ("fail-over", 1, brokers.fails_over),
    ("cluster forgets", 0, brokers.forgets),
    ("cluster forgets in a claim", 0, brokers.forgets_while_claiming),
    ("cluster loses its tail", 0, brokers.loses_a_tail),
    ("broker stops", 1, brokers.stops),
    ("broker loses power", 1, brokers.loses_power),
    ("broker starts", 4, brokers.starts),
    ("broker is cut off", 1, brokers.cuts_off),
    ("disks are synced", 1, brokers.syncs),
    ("local retention", 2, brokers.retires),
    ("local retention is short", 0, brokers.retires_hard),
    ("member is replaced", 0, brokers.member_is_replaced),
    ("clock jumps", 1, brokers.clock_jumps),
    ("disk fails", 0, brokers.disk_fails),
    ("local file rots", 0, brokers.file_rots),
    ("agent dies", 1, brokers.agent_dies),
    ("agent begins", 2, brokers.agent_begins),
    ("agent is stopped", 1, brokers.agent_sleeps),
    ("stray upload", 0, strays.stray),
    ("earlier life", 0, strays.earlier_life),
    ("commit", 3, workflows.commits),
    ("rebalance", 2, workflows.rebalances),
    ("retention", 2, workflows.retains),
    ("consolidate", 2, workflows.consolidates),
    ("collect", 3, workflows.collects),
    ("rebuild", 1, workflows.rebuilds),
    ("reconcile", 2, workflows.reconciles),
    ("scan", 0, workflows.scans),
    ("read", 2, workflows.reads),
    ("Lambda dies", 2, workflows.lambda_dies),
    ("Lambda is slow", 1, workflows.lambda_is_slow),
    ("service fails", 1, workflows.service_fails),
    ("backup", 0, workflows.backs_up),
    ("table is restored", 0, workflows.table_is_restored),
    ("late copy", 0, harm.late_copy),
    ("chunk rots", 0, harm.rots),
    ("trailer rots", 0, harm.trailer_rots),
    ("object is cut", 0, harm.is_cut),
    ("object vanishes", 0, harm.vanishes),
    ("group is lost", 0, harm.group_is_lost),
    ("root is lost", 0, harm.root_is_lost),
    ("metadata is lost", 0, harm.metadata_is_lost),
    ("odd key", 0, harm.odd_key),
    ("repair", 0, operators.repairs),
    ("drop", 0, operators.drops),
    ("erase", 0, erasing.erases),
    ("purge", 0, erasing.purges),
    ("delete", 0, operators.deletes),
    ("undelete", 0, operators.undeletes),
    ("sweep", 0, operators.sweeps),
    ("hold", 0, operators.holds),
    ("name", 0, operators.names),
)
_ALWAYS = frozenset({"time passes", "chunks are written", "replicas copy"})
_LOSE_ITEMS = frozenset({"table is restored", "metadata is lost"})
_WORKFLOWS = {"rebalance": 10, "retention": 8, "consolidate": 10, "commit": 8, "Lambda dies": 4}
_THEMES: Mapping[str, Mapping[str, int]] = {
    "agents": {"agent dies": 3, "agent begins": 6, "agent is stopped": 3, "disk fails": 2,
               "earlier life": 4,
               "service fails": 4, "local retention": 5, "local retention is short": 2},
    "brokers": {"earlier life": 2, "election": 4, "fail-over": 4, "cluster forgets": 3,
                "broker stops": 3, "cluster forgets in a claim": 3, "broker loses power": 4,
                "cluster loses its tail": 3,
                "broker is cut off": 3, "disks are synced": 3, "member is replaced": 2,
                "agent begins": 4, "drop": 1, "local retention": 5, "local file rots": 2},
    "holes": {"earlier life": 10, "local retention is short": 8, "days pass": 2, "collect": 4,
              "local retention": 6, "agent dies": 6, "agent begins": 8, "election": 3, "read": 5,
              "chunks are written": 25},
    "workflows": {**_WORKFLOWS, "read": 6, "Lambda is slow": 4},
    "readers": {"read": 30, "cluster forgets": 5, "election": 3, "retention": 8, "consolidate": 5,
                "collect": 8, "days pass": 5, "Lambda is slow": 8, "local retention is short": 2},
    "garbage": {**_WORKFLOWS, "earlier life": 6, "local retention": 4, "collect": 14,
                "days pass": 8, "late copy": 8, "election": 3, "cluster forgets": 3,
                "Lambda is slow": 5, "drop": 2, "rebuild": 2},
    "harm": {"chunk rots": 8, "trailer rots": 3, "object is cut": 2, "object vanishes": 2,
             "earlier life": 3,
             "repair": 14, "rebuild": 5, "collect": 8, "days pass": 6, "late copy": 4,
             "local retention is short": 2, "retention": 3, "consolidate": 6, "read": 4},
    "losses": {"group is lost": 5, "root is lost": 5, "metadata is lost": 3, "rebuild": 14,
               "earlier life": 3,
               "retention": 6, "rebalance": 5, "collect": 6, "days pass": 4, "repair": 4,
               "chunk rots": 3, "cluster forgets": 2, "late copy": 4, "object vanishes": 2},
    "table": {"backup": 5, "table is restored": 5, "reconcile": 10, "scan": 5, "retention": 5,
              "collect": 5, "days pass": 3, "rebuild": 3, "election": 3, "commit": 6},
    "deletion": {"delete": 12, "undelete": 6, "sweep": 20, "hold": 5, "collect": 5, "days pass": 4,
                 "backup": 2, "table is restored": 2, "reconcile": 3, "name": 2},
    "erasure": {"erase": 14, "purge": 12, "consolidate": 8, "read": 8, "election": 3,
                "cluster forgets": 3, "late copy": 4, "rebuild": 3, "repair": 4, "chunk rots": 2,
                "collect": 4, "commit": 6, "agent begins": 4, "retention": 2, "hold": 1,
                "days pass": 2, "Lambda dies": 4, "Lambda is slow": 4, "group is lost": 1},
    "strangers": {"earlier life": 4, "odd key": 8, "stray upload": 16, "scan": 4, "election": 4,
                  "cluster forgets": 2, "collect": 6, "rebuild": 4, "days pass": 3, "reconcile": 4,
                  "consolidate": 4, "delete": 1, "sweep": 2},
}  # fmt: skip
#: How often a history of a theme has a second stream, which begins bare.
_SECONDS = {"agents": 60.0, "brokers": 20.0, "deletion": 40.0, "holes": 30.0, "table": 30.0}
