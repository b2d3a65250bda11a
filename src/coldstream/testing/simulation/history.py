"""One history: a while of trouble, decided by a seed, then peace, then the last checks.

Each history has its own mixture of troubles, so that some go deep where others go wide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from coldstream.testing.simulation import brokers, workflows
from coldstream.testing.simulation.choices import Choices
from coldstream.testing.simulation.peace import peace
from coldstream.testing.simulation.scene import Scene, Shape

#: Things that happen in a history, before peace.
ACTIONS = 60


def play(choices: Choices, scene: Scene, *, actions: int = ACTIONS) -> None:
    """Play a whole history, with a past or without one.

    Args:
        choices: decide everything, as they have decided the scene.
        scene: where it is played, from `set_up`.
        actions: how many things happen before peace.

    Raises:
        BrokenError: an invariant does not hold.
    """
    rounds = choices.below(3)
    if rounds:
        scene.take_over(prehistory(scene.shape, rounds))
    swarm = [weight * choices.below(3) for _, weight, _ in _ACTIONS]
    swarm[0] = swarm[0] or _ACTIONS[0][1]
    scene.net.percent = choices.one_of((0.0, 2.0, 8.0))
    scene.event_percent = choices.one_of((0.0, 15.0, 60.0))
    weights = [
        weight if name in _ALWAYS else swarm[n] for n, (name, weight, _) in enumerate(_ACTIONS)
    ]
    try:
        writer = scene.cluster.writer or scene.cluster.elect(scene.cluster.reachable)
        for replica in scene.cluster.replicas:
            if replica is writer or choices.below(4) == 3:
                scene.start_agent(replica)
        for _ in range(actions):
            _act(choices, scene, weights)
        peace(scene)
    finally:
        scene.scheduler.close()


def set_up(choices: Choices, trace: Callable[[str], None] | None = None) -> Scene:
    """A cluster and AWS in which nothing has happened yet.

    Args:
        choices: decide everything.
        trace: told of everything, or None.
    """
    shape = Shape(choices.one_of((3, 3, 5)), choices.one_of((6, 3, 20)))
    return Scene(choices, shape, trace, page_size=choices.one_of((1000, 3, 8)))


def _act(choices: Choices, scene: Scene, weights: list[int]) -> None:
    """Let a task go on, or have something else happen."""
    if scene.scheduler.ready and choices.below(10) < 7:
        scene.scheduler.step()
        return
    name, _, act = _ACTIONS[choices.weighted(weights)]
    if act(scene) is not False:
        scene.buckets[name] += 1


@cache
def prehistory(shape: Shape, rounds: int) -> Scene:
    """A while in which all goes well, so that there is a tree for the trouble to come."""
    scene = Scene(Choices(0, replay=[]), shape, None)
    writer = scene.cluster.elect(scene.cluster.reachable)
    assert writer is not None
    scene.start_agent(writer)
    for _ in range(rounds):
        for number in range(14):
            scene.cluster.write(writer, scene.scheduler.now, records=1 + number % 3)
        scene.replicate_all()
        for _ in range(4):
            scene.advance(1000)
            scene.drain()
        workflows.rebalances(scene)
        scene.drain()
    scene.scheduler.close()
    return scene


#: Name, weight, what. The first one is always possible.
_ACTIONS: tuple[tuple[str, int, Callable[[Scene], bool | None]], ...] = (
    ("time passes", 20, workflows.waits),
    ("chunks are written", 20, brokers.writes),
    ("replicas copy", 25, brokers.replicates),
    ("election", 3, brokers.elects),
    ("fail-over", 2, brokers.fails_over),
    ("cluster forgets", 1, brokers.forgets),
    ("cluster forgets in a claim", 1, brokers.forgets_while_claiming),
    ("broker stops", 2, brokers.stops),
    ("broker loses power", 2, brokers.loses_power),
    ("broker starts", 5, brokers.starts),
    ("broker is cut off", 2, brokers.cuts_off),
    ("disks are synced", 2, brokers.syncs),
    ("local retention", 3, brokers.retires),
    ("agent dies", 2, brokers.agent_dies),
    ("agent begins", 3, brokers.agent_begins),
    ("agent is stopped", 2, brokers.agent_sleeps),
    ("commit", 3, workflows.commits),
    ("rebalance", 3, workflows.rebalances),
    ("retention", 2, workflows.retains),
    ("consolidate", 2, workflows.consolidates),
    ("collect", 4, workflows.collects),
    ("rebuild", 1, workflows.rebuilds),
    ("reconcile", 2, workflows.reconciles),
    ("read", 3, workflows.reads),
    ("Lambda dies", 2, workflows.lambda_dies),
    ("backup", 1, workflows.backs_up),
    ("table is restored", 1, workflows.table_is_restored),
)
_ALWAYS = frozenset({"time passes", "chunks are written", "replicas copy", "agent begins"})
