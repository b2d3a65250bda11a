"""Which reads go to the remote tier: the four policies, by RocketMQ's names."""

from __future__ import annotations

from enum import StrEnum


class ReadPolicy(StrEnum):
    """What answers a read before the remote tier is asked.

    A reader of the remote tier has what was fetched, in memory and perhaps on disk. A gateway has
    the broker's log: `disk` is all that the log holds, `memory` its newest part, which the manifest
    does not have yet.
    """

    #: Memory and disk; the remote tier is asked for nothing.
    DISABLE = "disable"
    #: Memory, then disk, then the remote tier.
    NOT_IN_DISK = "not-in-disk"
    #: Memory, then the remote tier; the disk is neither read nor written.
    NOT_IN_MEM = "not-in-mem"
    #: The remote tier alone; nothing that was kept, and nothing is kept.
    FORCE = "force"
