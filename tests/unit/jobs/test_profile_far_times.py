"""The job profile over chunks of a clock gone wild: tables and page are made all the same."""

from __future__ import annotations

import numpy as np
import pytest

from coldstream.jobs.materialise.times import MAX_MS, MIN_MS
from coldstream.jobs.profile_count import Counted, count_chunks
from coldstream.jobs.profile_report import page
from coldstream.jobs.profile_sample import Sample, Seen
from coldstream.jobs.profile_tables import RATES, Prices, Profile, tables
from coldstream.manifest.catalog import CatalogItem

STREAM = "__orders_1745252105682952932"
NOW_MS = 1_795_000_000_000
PRICES = Prices(0.023, 0.005)


def _profile(times: list[int], bucket_ms: int) -> Profile:
    chunk_ids = np.arange(len(times) + 1, dtype=np.uint64)
    positions = np.arange(len(times) + 1, dtype=np.int64) * 100
    counted = Counted()
    for fragment in (times[:2], times[2:]):
        count = len(fragment)
        counted.merge(
            count_chunks(
                chunk_ids[: count + 1],
                np.array(fragment, np.int64),
                positions[: count + 1],
                bucket_ms=bucket_ms,
                since_ms=-(2**63),
            ),
            bucket_ms,
        )
    sample = Sample(
        publishers={"p": Seen(1, 1, times[0])}, consumers={"c": [Seen(1, 1, times[-1])]}
    )
    return Profile(CatalogItem(STREAM, "t", next_offset=9), 1, counted, sample)


@pytest.mark.parametrize("bucket_ms", [1000, 3_600_000, 86_400_000])
@pytest.mark.parametrize(
    "odd", [-(2**63), MIN_MS - 1, MIN_MS, -1, 0, MAX_MS, MAX_MS + 1, 2**63 - 1]
)
def test_a_chunk_of_any_time_has_its_place_in_the_tables_and_on_the_page(
    odd: int, bucket_ms: int
) -> None:
    profile = _profile([NOW_MS, odd, NOW_MS + 1, odd], bucket_ms)

    made = tables([profile], bucket_ms=bucket_ms, prices=PRICES)

    rates = made[RATES.name].to_pylist()
    assert sum(row["chunks"] for row in rates) == 4
    assert all(1 <= row["time"].year <= 9999 for row in rates)
    assert STREAM in page(made, taken_ms=NOW_MS, prices=PRICES)
