"""What the other members of a stream still have: asked before anything is declared lost.

A stream has a replica on several nodes, and each applies retention for itself. So a range that the
local log has lost may still be on another node, whose agent can upload it. In the agent's declared
mode nobody can be asked; there the operator says it, or no range is ever given up.
"""

from __future__ import annotations

from typing import Protocol

from coldstream.errors import LostRangeError
from coldstream.usecases.holes import Gap


class Members(Protocol):
    """The other members of each stream."""

    def earliest(self, stream: str) -> int | None:
        """The lowest first offset that any reachable other member still has.

        None if none of them has anything, or none can be asked.
        """
        ...


class LastCopy:
    """No other member has older data, because the operator said so (`--last-copy`)."""

    def earliest(self, stream: str) -> int | None:
        """None for every stream."""
        del stream
        return None


def check_lost(members: Members | None, stream: str, gap: Gap, *, local_first: int) -> None:
    """Return if no member has anything of a gap; only then may it be declared lost.

    Args:
        members: who can be asked; None if nobody has said anything about other members.
        stream: directory name.
        gap: behind the resolved chain.
        local_first: where the local log begins.

    Raises:
        LostRangeError: somebody has, or may have, some of it. The message says what to do.
    """
    where = f"the local log begins at {local_first}, and {gap} were never uploaded"
    if members is None:
        raise LostRangeError(
            f"{where}; if another node still has them, run its agent; if none has, start this one"
            " with --last-copy, which declares them lost and goes on",
            stream=stream,
            offset=gap.first_offset,
        )
    earliest = members.earliest(stream)
    if earliest is not None and earliest < gap.next_offset:
        raise LostRangeError(
            f"{where}; another member still has them from {max(earliest, gap.first_offset)} on;"
            " let its agent upload them",
            stream=stream,
            offset=gap.first_offset,
        )
