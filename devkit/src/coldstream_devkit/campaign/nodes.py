"""Nodes that die, freeze, come back, or come back with a wrong clock; fail-overs are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from coldstream_devkit.broker import BrokerError, BrokerNode
from coldstream_devkit.campaign.life import wait_until
from coldstream_devkit.campaign.scene import CampaignError, Scene


def kill_a_leader(scene: Scene) -> None:
    """Kill a node that leads streams, and start it again when others lead them."""
    led = _leading(scene)
    if led:
        kill(scene, scene.rng.choice(led))


def kill_a_follower(scene: Scene) -> None:
    """Kill a node that leads fewest streams."""
    leaders = list(scene.leaders().values())
    kill(scene, min(scene.cluster.nodes, key=lambda node: leaders.count(node.name)))


def set_a_clock_wrong(scene: Scene) -> None:
    """Kill a node, and start it again with a clock that is wrong by a day, or right again."""
    node = scene.rng.choice(scene.cluster.nodes)
    clock = scene.rng.choice([each for each in scene.clocks if each != node.clock] or [None])

    def wrong() -> None:
        node.clock = clock
        scene.counts["clocks of nodes set"] += 1
        scene.say(f"the clock of {node.name} is {clock.seconds if clock else 0:+d} s wrong")

    kill(scene, node, wrong)


def kill(scene: Scene, node: BrokerNode, meanwhile: Callable[[], None] | None = None) -> None:
    """Kill a node, and start it again when others lead what it led.

    Args:
        scene: with the node.
        node: that dies.
        meanwhile: is done while it is dead.

    Raises:
        CampaignError: it does not come up again.
    """
    before = scene.leaders()
    led = {queue for queue, name in before.items() if name == node.name}
    scene.say(f"kill {node.name}, leader of {sorted(led)}")
    node.kill()
    scene.counts["nodes killed"] += 1
    _await_leaders(scene, led, {node.name})
    if meanwhile is not None:
        meanwhile()
    time.sleep(scene.rng.uniform(0, 4))
    _start([node])


def leave_a_leader_alone(scene: Scene) -> None:
    """Kill both other nodes, let it write what nobody has, kill it; the others go on.

    Then it comes back with its stale tail, and its agent beside it.
    """
    leaders = scene.leaders()
    # 3.10 elects nobody for minutes where its founder is down.
    led = [node for node in _leading(scene) if node is not scene.cluster.nodes[0]]
    if not led:
        return
    old = scene.rng.choice(led)
    mine = {queue for queue, name in leaders.items() if name == old.name}
    others = [node for node in scene.cluster.nodes if node is not old]
    for node in others:
        node.kill()
    time.sleep(scene.rng.uniform(1, 4))
    old.kill()
    scene.counts["nodes killed"] += 3
    scene.counts["leaders left alone"] += 1
    scene.say(f"{old.name} was left alone with {sorted(mine)}")
    with suppress(BrokerError):  # 4.x has no such command, and needs none
        others[0].control("force_boot")
    _start(others)
    _await_leaders(scene, mine, {old.name})
    now = time.monotonic()
    wait_until(lambda: scene.confirms(now), 60)
    _start([old])


def freeze_a_node(scene: Scene) -> None:
    """Stop a node for some seconds."""
    node = scene.rng.choice(scene.cluster.nodes)
    scene.counts["nodes frozen"] += 1
    node.pause()
    time.sleep(scene.rng.uniform(1, 12))
    node.resume()


def _leading(scene: Scene) -> list[BrokerNode]:
    names = set(scene.leaders().values())
    return [node for node in scene.cluster.nodes if node.name in names]


def _await_leaders(scene: Scene, led: set[str], dead: set[str]) -> None:
    """Wait until these streams have leaders that live; count the fail-over."""
    if not led:
        return

    def moved() -> bool:
        now = scene.leaders()
        return all(now.get(queue, min(dead)) not in dead for queue in led)

    if wait_until(moved, 60):
        scene.counts["fail-overs"] += 1
        scene.counts["streams failed over"] += len(led)
    else:
        scene.counts["no election within a minute"] += 1
        scene.say(f"no new leader of {sorted(led)} yet: {scene.leaders()}")


def _start(nodes: list[BrokerNode]) -> None:
    for node in nodes:
        node.start(wait=False)
    try:
        for node in nodes:
            node.wait()
    except BrokerError as exc:
        raise CampaignError(str(exc)) from exc
