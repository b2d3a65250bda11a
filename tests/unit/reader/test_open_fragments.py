from __future__ import annotations

import gc
import tracemalloc

import pytest

from coldstream.fragment import FragmentIndex
from coldstream.reader.open_fragments import OpenFragment, OpenFragments
from coldstream.soundness.chunks import Records
from coldstream_devkit.fragments import build_fragment
from tests.support.tier import PREFIX


def opened(first: int, chunks: int) -> OpenFragment:
    made = build_fragment(first, first + 2 * chunks, records_per_chunk=2, body_size=1)
    section = made.index_section
    index = FragmentIndex(section, made.trailer)
    return OpenFragment(made.key, made.key.path(PREFIX), index, Records.of(section, index))


def test_many_small_ones_stay_and_few_large_ones() -> None:
    small = [opened(10 * n, 1) for n in range(50)]
    kept = OpenFragments(sum(each.memory for each in small[:30]))
    for each in small:
        kept.put(each)
        kept.put(each)  # two readers have opened it
    assert [each for each in small if kept.get(each.path) is each] == small[20:]
    assert kept.memory == sum(each.memory for each in small[20:])

    large = [opened(10_000 * n, 2_000) for n in range(6)]
    for each in large:
        kept.put(each)
    assert [kept.get(each.path) is each for each in large] == [False, False, True, True, True, True]
    assert not any(kept.get(each.path) for each in small)


def test_who_is_used_stays_longer_than_who_is_not() -> None:
    first, *others = [opened(10 * n, 1) for n in range(20)]
    kept = OpenFragments(10 * first.memory)
    kept.put(first)
    for each in others:
        kept.put(each)
        assert kept.get(first.path) is first
    assert kept.get(others[0].path) is None


@pytest.mark.parametrize("chunks", [1, 20_000])
def test_no_more_memory_is_held_than_is_said(chunks: int) -> None:
    opened(0, 1)
    gc.collect()
    tracemalloc.start()
    found = opened(2**40, chunks)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert held <= found.memory < 2 * held + 8192
