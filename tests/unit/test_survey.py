"""A survey of all streams: what one item that nobody can judge does to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.policy import PolicySet, Rule
from coldstream.usecases.survey import Surveyed, survey
from tests.unit.remote import STREAM, Remote

OTHER = "__invoices_1745252105682952999"
OLD = PolicySet((Rule("old", max_age_ms=1000),))


@pytest.mark.parametrize("workflow", [Surveyed.RETENTION, Surveyed.CONSOLIDATE])
def test_an_item_whose_name_no_rule_can_be_asked_about_stops_no_other_stream(
    workflow: Surveyed,
) -> None:
    remote = Remote().claimed().claimed(stream=OTHER)
    for stream, queue in ((STREAM, "q"), (OTHER, "q" * 256)):
        remote.items.items[stream] = replace(
            remote.items.items[stream],
            name=QueueName("c", "/", queue),
            next_offset=50,
            fragments=50,
            total_size=50,
        )

    page = survey(remote.new_world(), workflow, OLD, now_ms=10**13, target_size=2**20)

    assert page.streams == (STREAM,)
    assert page.seen == 2
    (damaged,) = page.damaged
    assert isinstance(damaged, CorruptDataError)
    assert (damaged.stream, "255" in str(damaged)) == (OTHER, True)
