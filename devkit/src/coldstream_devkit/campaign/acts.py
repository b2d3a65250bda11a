"""What is done, one act after the other, by chance; agents are killed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread

from coldstream_devkit.campaign import loss, nodes
from coldstream_devkit.campaign.life import Kind, wait_until
from coldstream_devkit.campaign.scene import Scene

_RECOVERY_SECONDS = 120.0
_SPARED_SECONDS = 20.0
_RIGHT = 0.6


def freeze_an_agent(scene: Scene) -> None:
    """Stop an agent for some seconds."""
    agent = scene.rng.choice(scene.agents)
    scene.counts["agents frozen"] += 1
    agent.freeze(scene.rng.uniform(1, 12))


def delete_and_create(scene: Scene) -> None:
    """Delete a stream while it is published to, and create it anew."""
    scene.delete(f"s.{Kind.REBORN}")
    scene.create(Kind.REBORN)


_ACTS: Mapping[Callable[[Scene], None], int] = {
    nodes.kill_a_leader: 16,
    nodes.leave_a_leader_alone: 5,
    nodes.kill_a_follower: 3,
    nodes.freeze_a_node: 2,
    nodes.set_a_clock_wrong: 3,
    freeze_an_agent: 2,
    delete_and_create: 2,
    loss.empty_a_member: 3,
    loss.replace_a_member: 2,
    loss.let_retention_win: 1,
}


def known() -> list[str]:
    """Names of all acts."""
    return [act.__name__ for act in _ACTS]


@dataclass(slots=True)
class Acts:
    """One act after the other; agents are killed in a thread beside it.

    Args:
        scene: that it works on.
        names: of the acts that are done.
        least_pause: seconds between two kills of agents, at the least.
        most_pause: at the most.
    """

    scene: Scene
    names: list[str] = field(default_factory=known)
    least_pause: float = 0.5
    most_pause: float = 3.0

    def go_on(self) -> None:
        """Do one thing by chance, and wait until the cluster works again.

        Raises:
            CampaignError: it does not come back.
        """
        scene = self.scene
        acts = {act: weight for act, weight in _ACTS.items() if act.__name__ in self.names}
        (act,) = scene.rng.choices(list(acts), list(acts.values()))
        scene.say(act.__name__)
        began = time.monotonic()
        act(scene)
        ended = time.monotonic()
        if not wait_until(lambda: scene.confirms(ended), _RECOVERY_SECONDS):
            silent = [
                queue for queue, run in scene.running.items() if run.publisher.last_confirm < ended
            ]
            scene.counts["slow recoveries"] += 1
            scene.say(f"nothing is confirmed of {silent}")
        scene.say(f"{act.__name__} took {time.monotonic() - began:.1f} s")

    def killing_agents(self, stop: Event) -> Thread:
        """Kill agents by chance in a thread until `stop`; some come back with a wrong clock.

        One of them is spared, ever another: where none lives for long, retention wins.
        """
        rng, agents, clocks = self.scene.rng, self.scene.agents, self.scene.clocks

        def run() -> None:
            while not stop.wait(rng.uniform(self.least_pause, self.most_pause)):
                spared = int(time.monotonic() / _SPARED_SECONDS) % len(agents)
                agent = rng.choice(agents[:spared] + agents[spared + 1 :])
                agent.clock = None if rng.random() < _RIGHT else rng.choice(clocks)
                agent.kill()
                for each in agents:
                    each.look()

        thread = Thread(target=run, name="kill agents", daemon=True)
        thread.start()
        return thread
