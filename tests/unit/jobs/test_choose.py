"""Which streams a run looks at, and what it takes for new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import CorruptDataError, UnavailableError
from coldstream.jobs.materialise.choose import Chosen, choose
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.run import Runner
from coldstream.jobs.materialise.run_settings import RunSettings
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from tests.unit.jobs.test_materialise_run import BILLS, ORDERS, Site, _bodies

_PLAIN = BackfillWindow()
RULE = TableRule("orders", "db.t", start="next")
OLD = CatalogItem(ORDERS, "t", name=QueueName("c", "/", "orders"))
#: The queue is deleted and declared again, and may be so while both are there.
NEW = CatalogItem(BILLS, "t", name=QueueName("c", "/", "orders"))


def _run(
    site: Site,
    items: list[CatalogItem],
    *,
    unread: str = "",
    damaged: str = "",
    window: BackfillWindow = _PLAIN,
) -> Chosen:
    """As the job does it."""

    def look(item: CatalogItem) -> StreamNow:
        if item.stream == unread:
            raise UnavailableError("no answer")
        return site.now(item.stream)

    wrong = {damaged: CorruptDataError("damaged")} if damaged else {}
    readable = [item for item in items if item.stream not in wrong]
    chosen = choose((RULE,), readable, window, look, wrong)
    ((rule, meant),) = chosen.by_table()["db.t"]
    runner = Runner(site.engine, lambda: f"{next(site.ids):016x}", lambda _: None, lambda _: None)
    runner.fill(rule, site.tables, meant.streams, RunSettings(window), named=meant.names)
    return chosen


@pytest.mark.parametrize(
    ("old", "how"),
    [
        pytest.param(OLD, {"unread": ORDERS}, id="cannot be read now"),
        pytest.param(OLD, {"damaged": ORDERS}, id="its item is damaged"),
        pytest.param(
            replace(OLD, state=StreamState.DELETED),
            {"window": BackfillWindow(next_offset=100)},
            id="deleted, and left alone by a back-fill",
        ),
    ],
)
def test_a_stream_that_comes_later_is_read_from_its_first_message_whatever_next_says(
    old: CatalogItem, how: dict[str, Any]
) -> None:
    """It began at its end, and nobody was told."""
    site = Site({ORDERS: _bodies(30)}, RULE)
    _run(site, [OLD])
    site.bodies[ORDERS] = _bodies(50)
    _run(site, [OLD])
    site.bodies[BILLS] = _bodies(20)

    _run(site, [old, NEW], **how)
    site.bodies[BILLS] = _bodies(25)
    _run(site, [OLD, NEW])

    rows, dead = site.content()
    of_new = [offset for stream, offset, _ in rows if stream == BILLS]
    assert sorted([*of_new, *(offset for stream, offset in dead if stream == BILLS)]) == [
        *range(25)
    ]


def test_a_name_that_is_recorded_while_the_manifest_is_read_changes_no_rule() -> None:
    """The rule was chosen twice, and the second time there was none."""
    unnamed = CatalogItem(ORDERS, "t")
    rule = TableRule(f"{ORDERS[:9]}.*", "db.t")
    later = StreamNow(ORDERS, "orders", 0, 1)

    chosen = choose((rule,), [unnamed], BackfillWindow(), lambda _: later)

    assert chosen.by_table()["db.t"][0][1].streams == [later]
