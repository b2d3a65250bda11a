"""Who works for a stream: the agent beside a stream's writer uploads, the others stand by.

Every member's agent has the same bytes, and any number of them may upload at once: it is safe, and
costs a claim and what is uploaded twice. So this decides about money only, and a wrong answer about
the writer, or one that is minutes old, loses nothing.

One that stands by sees what is committed in its own log. Where that waits for flush time and
take-over time, it looks at the manifest; where the manifest has not moved either, it acts for the
writer's agent, for ten times the take-over time or longer. Where it has moved, the other one is
alive, and is given the take-over time once more. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.settings import AgentSettings

_ACTS_FOR = 10.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose work a stream is.

    Attributes:
        acts_until: it does the work of an agent that does not.
        looked_at: when it looked at the manifest, as one that stands by.
    """

    acts_until: float = float("-inf")
    looked_at: float = float("-inf")


def acts_for(settings: AgentSettings) -> float:
    """For how long one acts for another once it does, seconds: not only while it waits itself."""
    return max(
        _ACTS_FOR * settings.takeover_seconds, patience(settings) + settings.takeover_seconds
    )


def patience(settings: AgentSettings) -> float:
    """For how long one waits for what another may hold, seconds.

    That one acts flush time and twice the take-over time after it has seen it, at the latest: its
    first look may find that the manifest has moved. Then it has the take-over time to upload it.
    """
    return settings.flush_ms / 1000 + 3 * settings.takeover_seconds


def due_at(turn: Turn, oldest_at: float | None, settings: AgentSettings) -> float:
    """When the manifest is to be looked at; infinity while nothing waits.

    Args:
        turn: as it is.
        oldest_at: since when the oldest that is not published is known to be there; None if
            nothing waits.
        settings: of the agent.
    """
    if oldest_at is None:
        return float("inf")
    patience = settings.flush_ms / 1000 + settings.takeover_seconds
    return max(oldest_at + patience, turn.looked_at + settings.takeover_seconds)


def looked(turn: Turn, now: float, settings: AgentSettings, *, moved: bool) -> Turn:
    """The manifest was looked at: where it has not moved since, the other's work is done here.

    Args:
        turn: before.
        now: monotonic seconds.
        settings: of the agent.
        moved: whether it has moved since the last look.
    """
    return Turn(turn.acts_until if moved else now + acts_for(settings), now)
