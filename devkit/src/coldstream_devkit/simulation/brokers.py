"""What may happen to brokers and to the agents beside them; each tells whether it could."""

from __future__ import annotations

from dataclasses import replace

from coldstream_devkit.simulation.cluster import Cluster, Replica
from coldstream_devkit.simulation.scene import GRACE_MS, SETTINGS, Scene, replicate_all

#: Seconds, and a day: nothing that is decided goes by the clock of another machine.
_JUMPS_MS = (9_000, -9_000, 86_400_000, -86_400_000)


def writes(scene: Scene) -> bool:
    """A broker that believes to be the writer appends some chunks."""
    cluster = scene.pick().cluster
    leaders = [r for r in cluster.replicas if r.up and r.leads]
    if not leaders:
        return False
    writer = scene.choices.one_of(leaders)
    for _ in range(1 + scene.choices.below(4)):
        cluster.write(writer, scene.scheduler.now, records=1 + scene.choices.below(3))
    return True


def replicates(scene: Scene) -> bool:
    """Some replicas join the writer, or copy chunks of it."""
    cluster = scene.pick().cluster
    news = False
    for replica in cluster.replicas:
        if scene.choices.below(4) < 3:
            news = cluster.replicate(replica, chunks=1 + scene.choices.below(6)) or news
    return news


def elects(scene: Scene) -> bool:
    """A majority elects a writer, in a new epoch."""
    return elects_in(scene, scene.pick().cluster)


def elects_in(scene: Scene, cluster: Cluster) -> bool:
    """A majority of this cluster elects a writer, in a new epoch."""
    among = cluster.reachable
    if len(among) > cluster.majority:
        among = list(among)
        while len(among) > cluster.majority and scene.choices.below(2):
            among.pop(scene.choices.below(len(among)))
    best = cluster.elect(among)
    if best is not None:
        scene.scheduler.say(f"{best.name} writes epoch {best.epoch} from {best.tail} on")
    return best is not None


def _busy(scene: Scene) -> tuple[Cluster, Replica]:
    """A replica whose agent is in the middle of something, if there is one: the worst moment."""
    stream = scene.pick()
    return stream.cluster, scene.busy_node().replicas[stream.name]


def stops(scene: Scene) -> bool:
    """A broker ends; nothing of its log is lost."""
    cluster, replica = _busy(scene)
    if not replica.up:
        return False
    cluster.stop(replica, keep=None)
    scene.scheduler.say(f"{replica.name} stops")
    return True


def loses_power(scene: Scene) -> bool:
    """One node, or all of them at once: then committed messages may be lost."""
    cluster, busy = _busy(scene)
    victims = cluster.replicas if scene.choices.below(4) == 3 else [busy]
    for replica in victims:
        if not replica.up:
            continue
        lost = scene.choices.below(replica.tail - replica.synced + 1)
        _lose(scene, cluster, replica, lost)
    return True


def _lose(scene: Scene, cluster: Cluster, replica: Replica, lost: int) -> None:
    """A node loses power and its latest offsets; a chunk may be half there."""
    cluster.stop(replica, keep=replica.tail - lost)
    if lost and scene.choices.below(2):
        replica.segments[-1].tear(b"\x50half a chunk" * 9)
    scene.scheduler.say(f"{replica.name} loses power, and {lost} offsets")


def starts(scene: Scene) -> bool:
    """All brokers that are down begin again."""
    cluster = scene.pick().cluster
    down = [each for each in cluster.replicas if not each.up]
    for replica in down:
        cluster.start(replica, scene.scheduler.now)
        scene.scheduler.say(f"{replica.name} starts")
    return bool(down)


def cuts_off(scene: Scene) -> None:
    """The network takes a node away, or gives it back."""
    replica = scene.choices.one_of(scene.pick().cluster.replicas)
    replica.cut_off = not replica.cut_off
    replica.reachable_since = scene.scheduler.now
    scene.scheduler.say(f"{replica.name} cut off: {replica.cut_off}")


def syncs(scene: Scene) -> None:
    """What all brokers have written so far survives a loss of power."""
    for stream in scene.streams.values():
        for replica in stream.cluster.replicas:
            replica.synced = replica.tail


def retires(scene: Scene) -> bool:
    """Local retention takes the oldest segment of a node."""
    cluster, replica = _busy(scene)
    return retires_on(scene, cluster, replica)


def retires_on(scene: Scene, cluster: Cluster, replica: Replica) -> bool:
    """Local retention takes the oldest segment of this node."""
    done = cluster.retire(replica)
    if done:
        scene.buckets["local segment gone"] += 1
        scene.scheduler.say(f"{replica.name} begins at {replica.begin}")
    return done


def retires_hard(scene: Scene) -> bool:
    """Local retention is short: every member keeps its last segment only."""
    cluster = scene.pick().cluster
    done = False
    for replica in cluster.replicas:
        while retires_on(scene, cluster, replica):
            done = True
    return done


def member_is_replaced(scene: Scene) -> bool:
    """A member is made anew from nothing, and copies what the writer still has.

    Perhaps a policy has changed the size of segments, and its files begin where others do not.
    """
    cluster, replica = _busy(scene)
    writer = cluster.writer
    if writer is None or replica is writer or not replica.up:
        return False
    replica.begin_anew(writer.begin)
    replica.committed, replica.joined, replica.epoch = 0, False, 0
    replica.segment_chunks = 1 + scene.choices.below(2 * cluster.segment_chunks)
    replica.reachable_since = scene.scheduler.now
    scene.buckets["member replaced"] += 1
    scene.scheduler.say(f"{replica.name} begins from nothing at {writer.begin}")
    return True


def fails_over(scene: Scene) -> bool:
    """The writer stops, another one is elected, writes on, and is copied."""
    cluster = scene.pick().cluster
    writer = cluster.writer
    if writer is not None:
        cluster.stop(writer, keep=None)
        scene.scheduler.say(f"{writer.name} stops")
    return goes_on(scene, cluster)


def forgets(scene: Scene) -> bool:
    """All nodes lose power and their latest chunks, and go on with what they have."""
    cluster = scene.pick().cluster
    for replica in cluster.replicas:
        if replica.up:
            lost = scene.choices.below(min(replica.tail - replica.synced, 12) + 1)
            _lose(scene, cluster, replica, lost)
    for replica in cluster.replicas:
        cluster.start(replica, scene.scheduler.now)
    done = goes_on(scene, cluster)
    if done and scene.choices.below(3) == 2:
        # One member keeps as little as it may: perhaps nothing that shows where they diverged.
        for _ in range(1 + scene.choices.below(3)):
            goes_on(scene, cluster)
        replica = scene.choices.one_of(cluster.replicas)
        while retires_on(scene, cluster, replica):
            pass
    return done


def loses_a_tail(scene: Scene) -> bool:
    """All members lose the same tail; the log stays shorter than it was.

    Nothing that is written in its place lies where an agent cuts next.
    """
    return loses_a_tail_of(scene, scene.pick().cluster)


def loses_a_tail_of(scene: Scene, cluster: Cluster) -> bool:
    """The same, of this cluster."""
    if len(cluster.reachable) < len(cluster.replicas) or cluster.writer is None:
        return False
    least = max(each.synced for each in cluster.replicas)
    end = min(each.tail for each in cluster.replicas)
    if end - least < 2:
        return False
    keep = end - 2 - scene.choices.below(min(end - least - 1, 12))
    for replica in cluster.replicas:
        _lose(scene, cluster, replica, replica.tail - keep)
        cluster.start(replica, scene.scheduler.now)
    writer = cluster.elect(cluster.reachable)
    assert writer is not None
    scene.scheduler.say(f"{writer.name} writes epoch {writer.epoch} from {writer.tail} on")
    cluster.write(writer, scene.scheduler.now, records=1)
    replicate_all(cluster)
    scene.buckets["lost tail"] += 1
    return True


def forgets_while_claiming(scene: Scene) -> bool:
    """The cluster forgets, and a member again, or retires, in the middle of its new claim."""
    if not forgets(scene):
        return False
    scene.advance(2000)
    for _ in range(1 + scene.choices.below(12)):
        scene.scheduler.step()
    busy = [each.node for each in scene.agents if each.looking]
    if not busy:
        return False
    stream = scene.pick()
    replica = scene.choices.one_of(busy).replicas[stream.name]
    if scene.choices.below(2):
        return retires_on(scene, stream.cluster, replica)
    lost = scene.choices.below(min(replica.tail - replica.begin, 12) + 1)
    _lose(scene, stream.cluster, replica, lost)
    stream.cluster.start(replica, scene.scheduler.now)
    return True


def goes_on(scene: Scene, cluster: Cluster) -> bool:
    """Another writer is elected, writes on, and is copied."""
    if not elects_in(scene, cluster):
        return False
    writer = cluster.writer
    if writer is None:
        return False
    for _ in range(1 + scene.choices.below(4)):
        cluster.write(writer, scene.scheduler.now, records=1 + scene.choices.below(3))
    replicate_all(cluster)
    return True


def clock_jumps(scene: Scene) -> None:
    """The wall clock of a machine is set, by seconds or by a day."""
    node = scene.choices.one_of(scene.nodes)
    ms = scene.choices.one_of(_JUMPS_MS)
    node.jump(ms)
    scene.buckets["clock jumps"] += 1
    scene.scheduler.say(f"the clock of {node.name} jumps by {ms} ms")


def disk_fails(scene: Scene) -> None:
    """Looks at files of a machine fail now and then; or no longer."""
    node = scene.choices.one_of(scene.nodes)
    node.disk_percent = 0.0 if node.disk_percent else 15.0
    scene.buckets["disk fails"] += 1
    scene.scheduler.say(f"{node.name}: {node.disk_percent} % of all looks at files fail")


def file_rots(scene: Scene) -> bool:
    """Bits of one chunk change on the disk of one member; its index does not."""
    stream = scene.pick()
    replica = scene.choices.one_of(stream.cluster.replicas)
    segment = replica.segments[-1]
    if not segment.chunks:
        return False
    chunk = scene.choices.one_of(segment.chunks)
    at = 8 + sum(len(each.data) for each in segment.chunks if each.chunk_id < chunk.chunk_id)
    segment.data[at + len(chunk.data) - 1] ^= 0x40
    scene.buckets["local file rots"] += 1
    scene.scheduler.say(f"chunk {chunk.identity} rots on the disk of {replica.name}")
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
    """Another agent; perhaps the second one on its node, which cuts in another way."""
    node = scene.choices.one_of(scene.nodes)
    kind = scene.choices.below(4)
    if kind == 3:
        scene.buckets["agent run once"] += 1
        scene.start_agent(node, replace(SETTINGS, once=True))
    elif kind == 2:
        scene.start_agent(node, replace(SETTINGS, target_size=900))
    else:
        scene.start_agent(node)


def agent_sleeps(scene: Scene) -> bool:
    """The process of an agent is suspended, and goes on later where it was."""
    if not scene.agents:
        return False
    agent = scene.choices.one_of(scene.agents)
    ms = scene.choices.one_of((3000, 30_000, 3 * GRACE_MS))
    scene.scheduler.say(f"{agent.owner} is stopped for {ms} ms")
    scene.scheduler.freeze(agent.owner, ms)
    return True
