"""What a campaign calls wrong: the judge finds what is lost, twice there, or wrongly given up."""

from __future__ import annotations

import hashlib

from coldstream.reader.gap import Gap
from coldstream_devkit.campaign.check import Rows, judge, only_lost
from coldstream_devkit.campaign.life import Kind, Life


def lived(kind: Kind, count: int) -> tuple[Life, Rows]:
    """A life of so many messages, all of them confirmed and delivered at the offset below."""
    life = Life("s", "s1", kind, "__s_1")
    for number in range(1, count + 1):
        life.digests[number] = hashlib.sha256(b"%d" % number).digest()
        life.confirmed.add(number)
        life.delivered[number - 1] = number, life.digests[number]
    life.next_offset = count
    return life, dict(life.delivered)


def test_a_tier_that_has_what_was_delivered_has_no_defect() -> None:
    life, rows = lived(Kind.PLAIN, 20)

    assert judge(life, rows, [], 20).defects == []


def test_what_is_in_no_hole_and_not_in_the_tier_is_lost_also_where_retention_was_short() -> None:
    life, rows = lived(Kind.SHORT, 20)
    for offset in range(5, 10):
        del rows[offset]

    assert judge(life, rows, [Gap(5, 10)], 20).defects == []
    assert len(judge(life, rows, [Gap(5, 9)], 20).defects) == 2  # delivered, and confirmed


def test_what_the_tier_does_not_begin_with_is_lost() -> None:
    life, rows = lived(Kind.SHORT, 20)
    for offset in range(5):
        del rows[offset]

    assert judge(life, rows, [], 20).defects


def test_a_hole_over_what_a_member_has_or_that_nobody_is_told_of_is_a_defect() -> None:
    life, rows = lived(Kind.SHORT, 20)
    verdict = judge(life, rows, [Gap(5, 10)], 20)

    only_lost(verdict, [Gap(5, 10)], [(5, 10)], [10, None, 12])
    assert verdict.defects == []

    only_lost(verdict, [Gap(5, 10)], [(5, 10)], [10, 9, 12])
    only_lost(verdict, [Gap(5, 10)], [], [10])
    assert len(verdict.defects) == 2
