"""A scrub state that somebody has damaged counts as none: scrub never stops for it."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import CorruptDataError
from coldstream.jobs.scrub import state as module
from coldstream.jobs.scrub.state import VERSION, ScrubState, load_state, parse_state, save_state
from tests.support.lines import lines_of

UNDER = "scrub/state/"
GOOD = ScrubState({f"__s{n}_1": ((0, 100, 5), (100, 200, 7)) for n in range(200)})


def document(**streams: Any) -> bytes:
    return gzip.compress(json.dumps({"version": VERSION, "streams": streams}).encode(), mtime=0)


def test_any_flipped_bit_leaves_the_state_or_none() -> None:
    rnd = random.Random(1)
    good = GOOD.encode()
    for _ in range(500):
        data = bytearray(good)
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
        store = MemoryObjectStore()
        store.put(f"{UNDER}x", bytes(data), write_id="w")

        assert load_state(store, UNDER) in (GOOD, ScrubState())


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"[" * 5000),
        gzip.compress(b'{"version":1,"streams":' + b"[" * 100_000),
        GOOD.encode()[:-9],
        GOOD.encode()[:-1],
        GOOD.encode() + b"x",
        GOOD.encode() * 2,
        document(s=[[5, 5, 1]]),
        document(s=[[0, 5, -1]]),
        document(s=[[0, 5, 10**20]]),
        document(s=["abc"]),
        document(s=[[0, 5, True]]),
        document(s=[7]),
        b"",
    ],
    ids=range(13),
)
def test_what_is_no_state_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_state(data)


def test_a_damaged_newest_state_hides_no_older_one() -> None:
    store = MemoryObjectStore()
    save_state(store, UNDER, GOOD, now_ms=5, uid=1)
    store.put(f"{UNDER}0", gzip.compress(b"[" * 5000), write_id="w")

    assert load_state(store, UNDER) == GOOD


@pytest.mark.parametrize(
    "make",
    [
        lambda: gzip.compress(b"\0" * 2**28),
        lambda: gzip.compress(b"\0" * 2**24) * 16,
        lambda: gzip.compress(b'{"version":1,"streams":{"s":[' + b"[]," * 5_000_000),
        lambda: gzip.compress(b'{"version":1,"streams":{"s":[' + b"{}," * 5_000_000),
    ],
    ids=["one member", "many members", "empty lists", "empty objects"],
)
def test_a_small_object_that_unpacks_to_very_much_is_refused_early(
    make: Callable[[], bytes],
) -> None:
    data = make()
    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        parse_state(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 2**27


def test_ranges_that_all_overlap_cost_no_more_than_sorting_them() -> None:
    spans = [[number, 10**9 + number, number] for number in range(50_000)]
    data = document(s=spans)

    state, lines = lines_of(lambda: parse_state(data))

    assert lines < 100 * len(spans)
    assert len(state.streams["s"]) <= 1000
    ((_, _, when),) = state.of("s", 49_999, 10**9)
    assert 49_900 < when <= 49_999


def test_what_is_written_can_be_read_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_JSON", 10_000)
    many = ScrubState(
        {f"__s{n}_1": tuple((at, at + 1, at % 7 + 1) for at in range(900)) for n in range(20)}
    )

    read = parse_state(many.encode())

    assert read.streams.keys() == many.streams.keys()
    for stream, spans in read.streams.items():
        exact = many.of(stream, 0, 900)
        for low, high, when in spans:
            assert when <= min(each[2] for each in exact if each[0] < high and low < each[1])
