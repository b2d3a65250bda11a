"""What an operator may change while an agent runs: which streams it takes, and how it cuts them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from coldstream.agent.broker.asking import Asking
from coldstream.agent.disk.directory import Directories
from coldstream.agent.host import ThisMachine, Workers
from coldstream.agent.run import Agent
from coldstream.agent.selection import TIERED, Selection, Undecided, settings_for
from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.follower import StreamFollower
from coldstream.agent.telling.nameless import Nameless
from coldstream.agent.telling.progress import Progress
from coldstream.manifest.catalog import QueueName


@dataclass(slots=True)
class Steering:
    """Decides for each directory; only the agent's own thread uses it, which never waits here.

    Args:
        settings: of streams whose rule says nothing else.
        selection: the rules.
        names: queue of each directory, as far as it is settled.
        ask: finds out what a directory's queue is called, where somebody can; for a worker.
        undecided: directories that wait for their names, as of the last look.
        left: directories that a rule leaves alone, as of the last look.
    """

    settings: AgentSettings
    selection: Selection
    names: Mapping[str, QueueName]
    ask: Callable[[str], object]
    undecided: tuple[str, ...] = ()
    left: tuple[str, ...] = field(default=())
    asking: Asking = field(init=False)

    def __post_init__(self) -> None:
        self.asking = Asking(self.ask)

    def chosen(self, found: Directories) -> Directories:
        """What was found, without the streams that are not tiered, or not yet."""
        taken, undecided, left = [], [], []
        for stream in found.streams:
            rule = self.selection.rule_for(self.names.get(stream))
            if isinstance(rule, Undecided):
                undecided.append(stream)
            elif not rule.tier:
                left.append(stream)
            elif self.asking.about(stream):
                undecided.append(stream)  # whoever follows it asks about it, too
            else:
                taken.append(stream)
        self.undecided, self.left = tuple(undecided), tuple(left)
        return replace(found, streams=tuple(taken))

    def settings_of(self, stream: str) -> AgentSettings:
        """How to cut a stream that was chosen."""
        rule = self.selection.rule_for(self.names.get(stream))
        return settings_for(TIERED if isinstance(rule, Undecided) else rule, self.settings)

    def change(self, settings: AgentSettings, selection: Selection) -> None:
        """Go on with other settings and rules.

        Raises:
            InvalidInputError: they do not fit together; nothing is changed.
        """
        selection.check(settings)
        self.settings, self.selection = settings, selection


@dataclass(slots=True, kw_only=True)
class SteeredAgent(Agent):
    """An agent whose streams each have the settings of their rule, from the first look on.

    Args:
        steering: whose host this agent has, so that both see the same streams.
    """

    steering: Steering
    _nameless: Nameless = field(init=False)
    _asked: set[str] = field(default_factory=set)  # directories that nobody follows
    _asker: Workers = field(init=False)

    def __post_init__(self) -> None:
        Agent.__post_init__(self)  # slots leave `super()` no class to begin from
        self._nameless = Nameless(self.committed)

    def run(self) -> list[Progress]:
        """As `Agent.run`."""
        with self.host.workers(1, "name") as self._asker:
            return Agent.run(self)

    def steer(self) -> None:
        """Let all go on as the steering says by now; for the agent's own thread."""
        self.settings = self.steering.settings
        for stream, follower in self._followers.items():
            follower.steer(self.steering.settings_of(stream))
            if follower.ripe_at is not None:
                self._turns.wake(stream, follower.ripe_at)  # sooner, where it waits for less now

    def progress(self) -> list[Progress]:
        """As `Agent.progress`, and what waits for its name for too long."""
        return [*Agent.progress(self), *self._nameless.standing()]

    def _discover(self, now: float) -> None:
        Agent._discover(self, now)
        undecided = self.steering.undecided
        self._nameless.look(undecided, self.settings, now)
        # One that a look still has is let go of at a later pass.
        nobodys = [each for each in undecided if each not in self._followers]
        self.steering.asking.begin(self._asker, nobodys, self._stop)
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Nothing is to be known, or told, of what was asked about, never followed, and is gone."""
        steering = self.steering
        there = {*steering.undecided, *steering.left}
        gone = {each for each in self._asked - there if not steering.asking.about(each)}
        for each in gone - self._followers.keys():
            self.committed.forget(each)
        self._asked = (self._asked - gone) | there

    def _undecided(self) -> list[Progress]:
        return list(self._nameless.rows.values())

    def _left_out(self) -> int:
        return len(self.steering.left)

    def _follower(self, stream: str) -> StreamFollower:
        follower = Agent._follower(self, stream)
        follower.steer(self.steering.settings_of(stream))
        return follower


class Steered(ThisMachine):
    """This machine, on which an agent sees only the streams that it is to take."""

    def __init__(self, steering: Steering) -> None:
        super().__init__()
        self._steering = steering

    def scan(self, data_dir: Path, known: Collection[str]) -> Directories:
        """As `Host` says."""
        # What a rule leaves alone may be thousands of directories, and need not be looked into.
        return self._steering.chosen(super().scan(data_dir, {*known, *self._steering.left}))
