"""What may happen to brokers and to the agents beside them; each tells whether it could."""

from __future__ import annotations

from coldstream.testing.simulation.cluster import Replica
from coldstream.testing.simulation.scene import GRACE_MS, Scene


def writes(scene: Scene) -> bool:
    """A broker that believes to be the writer appends some chunks."""
    leaders = [r for r in scene.cluster.replicas if r.up and r.leads]
    if not leaders:
        return False
    writer = scene.choices.one_of(leaders)
    for _ in range(1 + scene.choices.below(4)):
        scene.cluster.write(writer, scene.scheduler.now, records=1 + scene.choices.below(3))
    return True


def replicates(scene: Scene) -> bool:
    """Some replicas join the writer, or copy chunks of it."""
    news = False
    for replica in scene.cluster.replicas:
        if scene.choices.below(4) < 3:
            news = scene.cluster.replicate(replica, chunks=1 + scene.choices.below(6)) or news
    return news


def elects(scene: Scene) -> bool:
    """A majority elects a writer, in a new epoch."""
    among = scene.cluster.reachable
    if len(among) > scene.cluster.majority:
        among = list(among)
        while len(among) > scene.cluster.majority and scene.choices.below(2):
            among.pop(scene.choices.below(len(among)))
    best = scene.cluster.elect(among)
    if best is not None:
        scene.scheduler.say(f"{best.name} writes epoch {best.epoch} from {best.tail} on")
    return best is not None


def stops(scene: Scene) -> bool:
    """A broker ends; nothing of its log is lost."""
    replica = scene.busy_node()
    if not replica.up:
        return False
    scene.cluster.stop(replica, keep=None)
    scene.scheduler.say(f"{replica.name} stops")
    return True


def loses_power(scene: Scene) -> bool:
    """One node, or all of them at once: then committed messages may be lost."""
    victims = scene.cluster.replicas if scene.choices.below(4) == 3 else [scene.busy_node()]
    for replica in victims:
        if not replica.up:
            continue
        lost = scene.choices.below(replica.tail - replica.synced + 1)
        scene.cluster.stop(replica, keep=replica.tail - lost)
        scene.scheduler.say(f"{replica.name} loses power, and {lost} offsets")
    return True


def starts(scene: Scene) -> bool:
    """All brokers that are down begin again."""
    down = [each for each in scene.cluster.replicas if not each.up]
    for replica in down:
        scene.cluster.start(replica, scene.scheduler.now)
        scene.scheduler.say(f"{replica.name} starts")
    return bool(down)


def cuts_off(scene: Scene) -> None:
    """The network takes a node away, or gives it back."""
    replica = scene.node()
    replica.cut_off = not replica.cut_off
    replica.reachable_since = scene.scheduler.now
    scene.scheduler.say(f"{replica.name} cut off: {replica.cut_off}")


def syncs(scene: Scene) -> None:
    """What all brokers have written so far survives a loss of power."""
    for replica in scene.cluster.replicas:
        replica.synced = replica.tail


def retires(scene: Scene) -> bool:
    """Local retention takes the oldest segment of a node."""
    return retires_on(scene, scene.busy_node())


def retires_on(scene: Scene, replica: Replica) -> bool:
    """Local retention takes the oldest segment of this node."""
    done = scene.cluster.retire(replica)
    if done:
        scene.scheduler.say(f"{replica.name} begins at {replica.begin}")
    return done


def fails_over(scene: Scene) -> bool:
    """The writer stops, another one is elected, writes on, and is copied."""
    writer = scene.cluster.writer
    if writer is not None:
        scene.cluster.stop(writer, keep=None)
        scene.scheduler.say(f"{writer.name} stops")
    return goes_on(scene)


def forgets(scene: Scene) -> bool:
    """All nodes lose power and their latest chunks, and go on with what they have."""
    for replica in scene.cluster.replicas:
        if replica.up:
            lost = scene.choices.below(min(replica.tail - replica.synced, 12) + 1)
            scene.cluster.stop(replica, keep=replica.tail - lost)
            scene.scheduler.say(f"{replica.name} loses power, and {lost} offsets")
    for replica in scene.cluster.replicas:
        scene.cluster.start(replica, scene.scheduler.now)
    done = goes_on(scene)
    if done and scene.choices.below(3) == 2:
        # One member keeps as little as it may: perhaps nothing that shows where they parted.
        for _ in range(1 + scene.choices.below(3)):
            goes_on(scene)
        replica = scene.node()
        while scene.cluster.retire(replica):
            scene.scheduler.say(f"{replica.name} begins at {replica.begin}")
    return done


def forgets_while_claiming(scene: Scene) -> bool:
    """The cluster forgets, and a member again, or retires, in the middle of its new claim."""
    if not forgets(scene):
        return False
    scene.advance(2000)
    for _ in range(1 + scene.choices.below(12)):
        scene.scheduler.step()
    busy = [each.replica for each in scene.agents if each.looking]
    if not busy:
        return False
    replica = scene.choices.one_of(busy)
    if scene.choices.below(2):
        return retires_on(scene, replica)
    lost = scene.choices.below(min(replica.tail - replica.begin, 12) + 1)
    scene.cluster.stop(replica, keep=replica.tail - lost)
    scene.cluster.start(replica, scene.scheduler.now)
    scene.scheduler.say(f"{replica.name} loses power, and {lost} offsets, and starts")
    return True


def goes_on(scene: Scene) -> bool:
    """Another writer is elected, writes on, and is copied."""
    if not elects(scene):
        return False
    writer = scene.cluster.writer
    if writer is None:
        return False
    for _ in range(1 + scene.choices.below(4)):
        scene.cluster.write(writer, scene.scheduler.now, records=1 + scene.choices.below(3))
    scene.replicate_all()
    return True


def agent_dies(scene: Scene) -> bool:
    """The process of an agent ends, in the middle of anything."""
    if not scene.agents:
        return False
    agent = scene.agents.pop(scene.choices.below(len(scene.agents)))
    scene.scheduler.say(f"{agent.owner} dies")
    scene.scheduler.kill(agent.owner)
    return True


def agent_begins(scene: Scene) -> None:
    """Another agent; perhaps the second one on its node."""
    scene.start_agent(scene.node())


def agent_sleeps(scene: Scene) -> bool:
    """The process of an agent is suspended, and goes on later where it was."""
    if not scene.agents:
        return False
    agent = scene.choices.one_of(scene.agents)
    ms = scene.choices.one_of((3000, 30_000, 3 * GRACE_MS))
    scene.scheduler.say(f"{agent.owner} is stopped for {ms} ms")
    scene.scheduler.freeze(agent.owner, ms)
    return True
