"""Who works for a stream: the agent beside a stream's writer uploads, the others stand by.

Every member's agent has the same bytes, and any number of them may upload at once: it is safe, and
costs a claim and what is uploaded twice. So this decides about money only, and a wrong answer about
the writer, or one that is minutes old, loses nothing.

One that stands by sees what is committed in its own log. Where that waits for flush time and
take-over time, it looks at the manifest; where the manifest has not moved either, it acts for the
writer's agent, for ten times the take-over time. Where it has moved, the other one is alive, and is
given the take-over time once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.settings import AgentSettings

_ACTS_FOR = 10.0


@dataclass(slots=True)
class Division:
    """Of one stream. Times are monotonic seconds.

    Args:
        settings: of the agent.
    """

    settings: AgentSettings
    _acts_until: float = float("-inf")
    _looked_at: float = float("-inf")  # at the manifest, as one that stands by

    @property
    def acts_for(self) -> float:
        """For how long it acts once it does, seconds."""
        return _ACTS_FOR * self.settings.takeover_seconds

    def acts(self, now: float) -> bool:
        """Whether it does the work of an agent that does not."""
        return now < self._acts_until

    def due_at(self, oldest_at: float | None) -> float:
        """When the manifest is to be looked at; infinity while nothing waits.

        Args:
            oldest_at: since when the oldest that is not published is known to be there; None if
                nothing waits.
        """
        if oldest_at is None:
            return float("inf")
        patience = self.settings.flush_ms / 1000 + self.settings.takeover_seconds
        return max(oldest_at + patience, self._looked_at + self.settings.takeover_seconds)

    def looked(self, now: float, *, moved: bool) -> bool:
        """The manifest was looked at; whether it acts from now on.

        Args:
            now: monotonic seconds.
            moved: whether it has moved since the last look.
        """
        self._looked_at = now
        if not moved:
            self._acts_until = now + self.acts_for
        return not moved
