"""What comes between agents and AWS, beside everything else that happens: spells of bad weather."""

from __future__ import annotations

import random
from threading import Event, Thread

from coldstream_devkit.campaign.link import Fault
from coldstream_devkit.campaign.scene import Scene

_WHO = "weather"
#: Seconds between two spells; of a spell, with its weight; bytes a second of a slow one.
_FAIR = (10.0, 50.0)
_SPELLS = (((5.0, 20.0), 6), ((20.0, 60.0), 3), ((60.0, 180.0), 1))
_RATES = (2_000, 20_000, 100_000)
_OF_ALL = 0.4


def weather(scene: Scene, seed: int, stop: Event) -> Thread:
    """Disturb the links of a scene, one or all of them, in a thread until `stop`.

    Args:
        scene: whose links these are.
        seed: of what comes when.
        stop: ends a spell as well.
    """
    rng = random.Random(seed)
    spells, weights = [each for each, _ in _SPELLS], [weight for _, weight in _SPELLS]

    def run() -> None:
        while not stop.wait(rng.uniform(*_FAIR)):
            (spell,) = rng.choices(spells, weights)
            fault, seconds = rng.choice(list(Fault)), rng.uniform(*spell)
            rate = rng.choice(_RATES) if fault is Fault.SLOW else 0
            links = scene.links if rng.random() < _OF_ALL else [rng.choice(scene.links)]
            whose = "all" if len(links) > 1 else f"port {links[0].port}"
            scene.say(f"the way to AWS of {whose} is {fault.name} for {seconds:.0f} s, {rate} B/s")
            scene.counts[f"spells of a way to AWS {fault.name.lower()}"] += 1
            scene.counts["seconds of such spells"] += round(seconds)
            for link in links:
                link.spoil(_WHO, fault, rate)
            stop.wait(seconds)
            for link in links:
                link.heal(_WHO)

    thread = Thread(target=run, name="weather", daemon=True)
    thread.start()
    return thread
