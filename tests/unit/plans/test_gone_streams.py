"""Which streams a broker has no more, by its own list and the names of directories."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.plans.gone import Fate, judge
from coldstream.plans.probe import probe_stream

MADE_MS = 1_795_444_148_462
STREAM = f"__a_b_{MADE_MS}839326"
LATER_MS = MADE_MS + 86_400_000


def item(stream: str = STREAM, **more: object) -> CatalogItem:
    return CatalogItem(stream=stream, table_id="t", **more)  # type: ignore[arg-type]


def fate(found: CatalogItem, *queues: QueueName, have: tuple[str, ...] = ()) -> Fate | None:
    judged = judge([found], queues, have, before_ms=LATER_MS)
    return judged[0].fate if judged else None


def test_a_stream_is_gone_only_where_no_queue_can_be_its_own() -> None:
    assert fate(item()) is Fate.GONE
    assert fate(item(), QueueName("", "/", "a_c")) is Fate.GONE
    for queue in ("a_b", "a.b", "a b"):
        assert fate(item(), QueueName("", "/", queue)) is Fate.QUEUE
    read_as_one = item(f"___x_{MADE_MS}839326")
    assert fate(read_as_one, QueueName("", "/", "e\u0301x")) is Fate.QUEUE
    wide = item(f"__a____{MADE_MS}839326")
    assert fate(wide, QueueName("", "/", "a\u00e4")) is Fate.QUEUE


def test_what_an_agent_has_or_was_written_lately_is_not_gone() -> None:
    assert fate(item(), have=(STREAM,)) is Fate.AGENT
    assert fate(item(last_timestamp=LATER_MS)) is Fate.YOUNG
    assert fate(item(f"__a_b_{LATER_MS}000000")) is Fate.YOUNG


@pytest.mark.parametrize("state", [each for each in StreamState if each is not StreamState.LIVE])
def test_only_live_streams_are_judged_and_no_probes(state: StreamState) -> None:
    assert fate(item(state=state)) is None
    assert fate(item(probe_stream("n", 1))) is None


@pytest.mark.parametrize("stream", ["orders", "orders_", "_17", "orders_\u0661", "a_b_" + 20 * "9"])
def test_a_name_that_no_broker_has_made_proves_nothing(stream: str) -> None:
    assert fate(item(stream)) is Fate.ODD


names = st.text(st.sampled_from("ab_.\u00e4\u0301/"), max_size=4)


@given(st.lists(st.tuples(names, names), max_size=5), names)
def test_a_queue_keeps_what_fits_its_name(queues: list[tuple[str, str]], made: str) -> None:
    """As `QueueName.fits` says for each."""
    stream = f"{made}_1"
    listed = [QueueName("", *each) for each in queues]

    kept = fate(item(stream), *listed) in (Fate.QUEUE, Fate.ODD)

    assert kept == (not made or any(each.fits(stream) for each in listed))


@given(st.text(st.sampled_from("ab_.-\u00e4\u65e5"), max_size=8))
def test_in_what_a_broker_may_have_made_of_a_name_no_two_repetitions_are_side_by_side(
    queue: str,
) -> None:
    """Thirteen of them, and one comparison took 24 seconds; six times as many with one more."""
    for made in QueueName("", "/", queue).made:
        assert not re.search("}_|__{", made), made


def test_a_long_name_outside_ascii_is_compared_with_what_it_does_not_fit() -> None:
    long = QueueName("", "/", "\u65e5" * 80 + "-\u65e5")

    assert not long.fits(f"__{'_' * 240}-{'_' * 5}_1")
    assert long.fits(f"__{'_' * 240}-{'_' * 3}_1")
    assert fate(item(f"__{'_' * 240}-{'_' * 5}_{MADE_MS}839326"), long) is Fate.GONE
