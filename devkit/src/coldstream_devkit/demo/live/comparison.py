"""Every confirmed message, read back from the remote tier: the same bytes at the same offset."""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.adapters.place import Remote
from coldstream.cli.connect import connect
from coldstream.deployment import ENV_BUCKET, ENV_PREFIX, ENV_TABLE
from coldstream_devkit.campaign.check import Rows, judge, tiered
from coldstream_devkit.campaign.life import Life


def identical(life: Life, rows: Rows) -> int:
    """How many confirmed messages the tier has as they were sent, where the broker has them.

    Args:
        life: what was sent, confirmed and delivered.
        rows: (number, SHA-256) of what the tier has, by offset.
    """
    there = {
        number
        for offset, (number, digest) in rows.items()
        if life.digests.get(number) == digest and life.delivered.get(offset) == (number, digest)
    }
    return len(life.confirmed & there)


def compared(life: Life, variables: Mapping[str, str]) -> tuple[int, list[str]]:
    """Read the whole stream back.

    Args:
        life: what was sent, confirmed and delivered.
        variables: that name the tier.

    Returns:
        As `identical`, and sentences about whatever else is not as it should be: messages that are
        missing, other, twice, swapped, or in a hole.

    Raises:
        ColdstreamError: it cannot be read.
    """
    remote: Remote = connect(
        bucket=variables[ENV_BUCKET], table=variables[ENV_TABLE], prefix=variables[ENV_PREFIX]
    )
    rows, gaps, end = tiered(remote, variables[ENV_PREFIX], life)
    verdict = judge(life, rows, gaps, end)
    found = list(verdict.defects)
    if verdict.holes:
        found.append(f"{verdict.holes} offsets are in holes")
    if verdict.unjudged:
        found.append(f"{verdict.unjudged} messages of the tier were not delivered by the broker")
    return identical(life, rows), found
