"""Acts that lose data: of one member, which gets it from the others; or of all, to retention."""

from __future__ import annotations

import shutil
import time

from coldstream_devkit.broker import BrokerError, BrokerNode
from coldstream_devkit.campaign.life import Kind, Life, earliest, wait_until
from coldstream_devkit.campaign.link import Fault
from coldstream_devkit.campaign.nodes import kill
from coldstream_devkit.campaign.scene import CampaignError, Scene

_WHO = "retention"
_STARVED_SECONDS = 180.0
_MEMBER_SECONDS = 90.0


def empty_a_member(scene: Scene) -> None:
    """Kill a node, remove one stream's directory on it, start it: the others give it everything."""
    life, node = _follower(scene)

    def emptied() -> None:
        shutil.rmtree(node.data_dir / life.directory)
        scene.counts["members emptied"] += 1
        scene.say(f"{life.directory} is gone from {node.name}")

    kill(scene, node, emptied)


def replace_a_member(scene: Scene) -> None:
    """Take a member of a stream out of the running cluster, and have a new one made there.

    Raises:
        CampaignError: the stream would stay without a third member.
    """
    life, node = _follower(scene)
    directory, name = node.data_dir / life.directory, f"{node.name}@localhost"
    asked = next(each for each in scene.cluster.nodes if each is not node)
    try:
        asked.streams("delete_replica", life.queue, name)
    except BrokerError as exc:
        scene.say(f"{life.queue} keeps its member on {node.name}: {exc}")
        return
    gone = wait_until(lambda: not directory.exists(), 30)
    scene.say(f"{life.queue} has no member on {node.name}; its files are gone: {gone}")
    time.sleep(scene.rng.uniform(0, 8))

    def added() -> bool:
        try:
            asked.streams("add_replica", life.queue, name)
        except BrokerError as exc:
            scene.say(f"no member of {life.queue} on {node.name} yet: {exc}")
        return wait_until(lambda: any(directory.glob("*.segment")), 10)

    if not wait_until(added, _MEMBER_SECONDS):
        raise CampaignError(f"{life.queue} gets no member on {node.name}")
    scene.counts["members replaced"] += 1


def let_retention_win(scene: Scene) -> None:
    """Cut all agents off until retention has taken all that a stream had, then kill them.

    What they held open is gone with them; so the range between the tier and the log is lost.
    """
    run = scene.running[f"s.{Kind.SHORT}"]
    there = run.life.next_offset
    for link in scene.links:
        link.spoil(_WHO, scene.rng.choice((Fault.REFUSED, Fault.HUNG)))

    def taken() -> bool:
        firsts = [earliest(node, run.life.queue) for node in scene.cluster.nodes]
        return all(first is not None and first > there for first in firsts)

    won = wait_until(taken, _STARVED_SECONDS, 1)
    scene.say(f"retention of {run.life.queue} has passed {there}: {won}")
    if won:
        scene.counts["times that retention was let win"] += 1
        for agent in scene.agents:
            agent.kill()
    for link in scene.links:
        link.heal(_WHO)


def _follower(scene: Scene) -> tuple[Life, BrokerNode]:
    """A stream, and a node that does not lead it."""
    leaders = scene.leaders()
    run = scene.rng.choice(list(scene.running.values()))
    nodes = [each for each in scene.cluster.nodes if each.name != leaders.get(run.life.queue)]
    return run.life, scene.rng.choice(nodes)
