"""Streams with more scattered gaps, or messages that nobody can read, than a state may name."""

from __future__ import annotations

import pytest

from coldstream.jobs.materialise import ranges, state
from coldstream.jobs.materialise.latest.rule import Latest, LatestKey
from coldstream.jobs.materialise.rule_fit import new_schema
from coldstream.jobs.materialise.rules import TableRule
from tests.unit.jobs.test_materialise_run import ORDERS, Site

_MOST = 5


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ranges, state):
        monkeypatch.setattr(module, "MAX_RANGES", _MOST)


def test_a_table_of_the_latest_goes_on_over_very_many_messages_that_cannot_be_read() -> None:
    """It was refused at 10,001 of them, in each run anew."""
    bodies: list[bytes | None] = [
        b"broken" if n % 2 else b'{"k":"%d","n":%d}' % (n % 10, n) for n in range(41)
    ]
    rule = TableRule(".*", "db.t", body="json", latest=Latest(LatestKey.parse("body.k"), 1))
    site = Site({ORDERS: bodies}, rule)

    site.run(window_bytes=10**9)

    found = {row["k"]: row["n"] for row in site.rows().to_pylist()}
    assert found == {"0": 40, "2": 32, "4": 34, "6": 36, "8": 38}
    assert site.rows(dead=True).num_rows == 20


@pytest.mark.parametrize("window_bytes", [1, 10**9])
def test_a_table_goes_on_over_very_many_holes_and_its_state_has_the_last_of_them(
    window_bytes: int,
) -> None:
    bodies: list[bytes | None] = [None if n % 2 else b"%d" % n for n in range(41)]
    site = Site({ORDERS: bodies}, TableRule(".*", "db.t"))

    said = site.run(window_bytes=window_bytes)

    rows, dead = site.content()
    assert [offset for _, offset, _ in rows] == list(range(0, 41, 2))
    assert len(dead) == said.lost_offsets == 20
    table = site.tables.rows
    known = table.load(new_schema(site.rule)).state
    assert known.of(ORDERS).spans == ((0, 41),)
    assert [first for first, _ in known.lost[ORDERS]] == [31, 33, 35, 37, 39]
