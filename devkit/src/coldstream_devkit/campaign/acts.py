"""What is done to the cluster: fail-overs, nodes that die or freeze, streams that go."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread

from coldstream_devkit.broker import BrokerError, BrokerNode
from coldstream_devkit.campaign.life import Kind, wait_until
from coldstream_devkit.campaign.scene import CampaignError, Scene

_RECOVERY_SECONDS = 120.0
_SPARED_SECONDS = 20.0


@dataclass(slots=True)
class Acts:
    """One act after the other; agents are killed in a thread beside it.

    Args:
        scene: that it works on.
        least_pause: seconds between two kills of agents, at the least.
        most_pause: at the most.
    """

    scene: Scene
    least_pause: float = 0.5
    most_pause: float = 3.0

    def go_on(self) -> None:
        """Do one thing by chance, and wait until the cluster works again.

        Raises:
            CampaignError: it does not come back.
        """
        scene = self.scene
        acts = {
            self.kill_a_leader: 8,
            self.leave_a_leader_alone: 3,
            self.kill_a_follower: 2,
            self.freeze_a_node: 1,
            self.freeze_an_agent: 1,
            self.delete_and_create: 1,
        }
        (act,) = scene.rng.choices(list(acts), list(acts.values()))
        scene.say(act.__name__)
        began = time.monotonic()
        act()
        ended = time.monotonic()
        if not wait_until(lambda: scene.confirms(ended), _RECOVERY_SECONDS):
            silent = [
                queue for queue, run in scene.running.items() if run.publisher.last_confirm < ended
            ]
            scene.counts["slow recoveries"] += 1
            scene.say(f"nothing is confirmed of {silent}")
        scene.say(f"{act.__name__} took {time.monotonic() - began:.1f} s")

    def killing_agents(self, stop: Event) -> Thread:
        """Kill agents by chance in a thread until `stop`.

        One of them is spared, ever another: where none lives for long, retention wins.
        """
        rng, agents = self.scene.rng, self.scene.agents

        def run() -> None:
            while not stop.wait(rng.uniform(self.least_pause, self.most_pause)):
                spared = int(time.monotonic() / _SPARED_SECONDS) % len(agents)
                rng.choice(agents[:spared] + agents[spared + 1 :]).kill()
                for agent in agents:
                    agent.look()

        thread = Thread(target=run, name="kill agents", daemon=True)
        thread.start()
        return thread

    def _led(self) -> list[BrokerNode]:
        names = set(self.scene.leaders().values())
        return [node for node in self.scene.cluster.nodes if node.name in names]

    def kill_a_leader(self) -> None:
        """Kill a node that leads streams, and start it again when others lead them."""
        led = self._led()
        if led:
            self._kill(self.scene.rng.choice(led))

    def kill_a_follower(self) -> None:
        """Kill a node that leads fewest streams."""
        leaders = list(self.scene.leaders().values())
        self._kill(min(self.scene.cluster.nodes, key=lambda node: leaders.count(node.name)))

    def _kill(self, node: BrokerNode) -> None:
        scene = self.scene
        before = scene.leaders()
        led = {queue for queue, name in before.items() if name == node.name}
        scene.say(f"kill {node.name}, leader of {sorted(led)}")
        node.kill()
        scene.counts["nodes killed"] += 1
        self._await_leaders(led, {node.name})
        time.sleep(scene.rng.uniform(0, 4))
        self._start([node])

    def _await_leaders(self, led: set[str], dead: set[str]) -> None:
        """Wait until these streams have leaders that live; count the fail-over."""
        if not led:
            return

        def moved() -> bool:
            now = self.scene.leaders()
            return all(now.get(queue, min(dead)) not in dead for queue in led)

        if wait_until(moved, 60):
            self.scene.counts["fail-overs"] += 1
            self.scene.counts["streams failed over"] += len(led)
        else:
            self.scene.counts["no election within a minute"] += 1
            self.scene.say(f"no new leader of {sorted(led)} yet: {self.scene.leaders()}")

    def _start(self, nodes: list[BrokerNode]) -> None:
        for node in nodes:
            node.start(wait=False)
        try:
            for node in nodes:
                node.wait()
        except BrokerError as exc:
            raise CampaignError(str(exc)) from exc

    def leave_a_leader_alone(self) -> None:
        """Kill both other nodes, let it write what nobody has, kill it; the others go on.

        Then it comes back with its stale tail, and its agent beside it.
        """
        scene = self.scene
        leaders = scene.leaders()
        # 3.10 elects nobody for minutes where its founder is down.
        led = [node for node in self._led() if node is not scene.cluster.nodes[0]]
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
        self._start(others)
        self._await_leaders(mine, {old.name})
        now = time.monotonic()
        wait_until(lambda: scene.confirms(now), 60)
        self._start([old])

    def freeze_a_node(self) -> None:
        """Stop a node for some seconds."""
        node = self.scene.rng.choice(self.scene.cluster.nodes)
        self.scene.counts["nodes frozen"] += 1
        node.pause()
        time.sleep(self.scene.rng.uniform(1, 12))
        node.resume()

    def freeze_an_agent(self) -> None:
        """Stop an agent for some seconds."""
        agent = self.scene.rng.choice(self.scene.agents)
        self.scene.counts["agents frozen"] += 1
        agent.freeze(self.scene.rng.uniform(1, 12))

    def delete_and_create(self) -> None:
        """Delete a stream while it is published to, and create it anew."""
        self.scene.delete(f"s.{Kind.REBORN}")
        self.scene.create(Kind.REBORN)
