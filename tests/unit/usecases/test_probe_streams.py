"""Streams of `coldstream doctor`: what takes streams by a pattern passes over them."""

from __future__ import annotations

import pytest

from coldstream.adapters.memory import MemoryCatalog
from coldstream.jobs.materialise.choose import choose
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.profile import wanted
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans.probe import probe_name, probe_stream
from coldstream.spark.streams import meant

STREAM = "__orders_1745252105682952932"
PROBE = probe_stream("n", 1)


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    for stream, name in ((STREAM, QueueName("", "/", "orders")), (PROBE, probe_name("n"))):
        made.anchor(CatalogItem(stream, made.table_id(), name=name))
    return made


def test_a_pattern_of_a_spark_reader_passes_over_a_probe_and_its_name_does_not(
    catalog: MemoryCatalog,
) -> None:
    assert [each.stream for each in meant(catalog, [".*"])] == [STREAM]
    for name in (PROBE, "coldstream/doctor-n", "doctor-n"):
        assert [each.stream for each in meant(catalog, [name])] == [PROBE]


def test_a_rule_for_every_stream_makes_no_table_of_a_probe(catalog: MemoryCatalog) -> None:
    rule = TableRule(".*", "db.all")

    chosen = choose(
        (rule,), catalog.streams(), BackfillWindow(), lambda item: StreamNow(item.stream, "x", 0, 1)
    )

    assert chosen.rules[rule].names == [STREAM]
    assert [each.stream for each in chosen.rules[rule].streams] == [STREAM]
    assert not chosen.unread


def test_a_profile_of_everything_has_no_probe(catalog: MemoryCatalog) -> None:
    assert [each.stream for each in catalog.streams() if wanted(each, "")] == [STREAM]
