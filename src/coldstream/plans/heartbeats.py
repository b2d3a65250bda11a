"""What agents say of themselves, and what an alarm should know of it.

An agent that is dead says nothing, so its last word stays, and its age is the alarm. A node that is
gone for good would raise it for ever: after a week its word counts no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: An agent that has been silent for so many of its own intervals is silent.
_MISSED = 5
FORGOTTEN_MS = 7 * 86_400_000
#: The longest interval that an agent may have: by a longer one it would never be silent.
MAX_INTERVAL_MS = 3_600_000
#: A clock that is further ahead would hide the silence of its agent for as long.
_AHEAD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last word of one agent. Times in ms since the Unix epoch, by the agent's clock.

    Attributes:
        node: name of its machine.
        at_ms: when it was said.
        interval_ms: until the next one.
        streams: how many it follows.
        behind: how many of them have something to upload or to commit.
        standing: how many of these make no progress.
        failing: how many wait after an error.
        racing: of how many local retention is about to take what is not published.
        pages: how many pages tell of its streams; 0 while not all have been written.
        lag_ms: for how long the oldest chunk of any of its streams has waited to be published; 0
            also where an older agent does not say.
        left_out: directories that its rules leave alone; 0 likewise.
        shared: 1 if it has seen another agent tell under the same name of late; 0 likewise.
        instance: id of the process, hexadecimal; empty likewise.
    """

    node: str
    at_ms: int
    interval_ms: int
    streams: int
    behind: int
    standing: int
    failing: int
    racing: int = 0
    pages: int = 0
    lag_ms: int = 0
    left_out: int = 0
    shared: int = 0
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What all heartbeats come to.

    Attributes:
        agents: that count.
        silent: names of those that have not been heard of for too long.
        troubled: names of those with streams that fail or make no progress, and of those whose
            silence would not be seen: their clock is ahead by more than an hour, or another agent
            tells under their name.
        racing: names of those with streams of which local retention is about to take what is not
            published.
        behind: streams that have something to upload or to commit.
        lags: by the names of those that are heard of, for how long their oldest chunk has waited to
            be published, ms; the longest first.
    """

    agents: int
    silent: tuple[str, ...]
    troubled: tuple[str, ...]
    racing: tuple[str, ...]
    behind: int
    lags: tuple[tuple[str, int], ...] = ()


def fleet(heartbeats: Iterable[Heartbeat], *, now_ms: int) -> Fleet:
    """What the heartbeats say at `now_ms`, by AWS's clock; ms since the Unix epoch."""
    known = [each for each in heartbeats if now_ms - each.at_ms < FORGOTTEN_MS]
    silent = [each for each in known if is_silent(each, now_ms)]
    heard = [each for each in known if each not in silent]
    return Fleet(
        agents=len(known),
        silent=tuple(sorted(each.node for each in silent)),
        troubled=tuple(sorted(each.node for each in heard if _is_troubled(each, now_ms))),
        racing=tuple(sorted(each.node for each in heard if each.racing)),
        behind=sum(each.behind for each in heard),
        lags=tuple(
            (each.node, each.lag_ms) for each in sorted(heard, key=lambda each: -each.lag_ms)
        ),
    )


def is_silent(each: Heartbeat, now_ms: int) -> bool:
    """Whether an agent has not been heard of for too long, at `now_ms` by AWS's clock."""
    return now_ms - each.at_ms > _MISSED * each.interval_ms


def _is_troubled(each: Heartbeat, now_ms: int) -> bool:
    hidden = each.shared or each.at_ms - now_ms > _AHEAD_MS
    return bool(each.standing or each.failing or hidden)


@dataclass(slots=True)
class NameWatch:
    """Notices another agent that tells under the same name, as where a host was cloned.

    The word of a process that was there before, and has ended, is in place of the first word only.
    What is found in the place of an own word was told by somebody who lives.

    Args:
        instance: id of this process.
    """

    instance: str
    _told: bool = False
    _until_ms: int = 0

    def see(self, before: Heartbeat | None, own: Heartbeat) -> None:
        """A word has arrived.

        Args:
            before: in whose place it is; None if nobody knows.
            own: the word.
        """
        if self._told and before is not None and before.instance != self.instance:
            self._until_ms = own.at_ms + _MISSED * max(before.interval_ms, own.interval_ms)
        self._told = True

    def shared(self, now_ms: int) -> bool:
        """Whether there was another one of late, at `now_ms` by the own clock."""
        return now_ms < self._until_ms
