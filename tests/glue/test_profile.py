"""What profile counts is what a plain look at every chunk counts; its page is safe to open."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.adapters.memory import MemoryCatalog
from coldstream.adapters.metrics import MemoryMetrics
from coldstream.adapters.place import Place
from coldstream.errors import CorruptDataError
from coldstream.jobs import web
from coldstream.jobs.profile import ProfileSettings, cut, perform, plan, run, wanted, write
from coldstream.jobs.profile_charts import MAX_BARS, histogram, sparkline, time_chart
from coldstream.jobs.profile_count import Bucket, Counted, Histogram, count_chunks, middle
from coldstream.jobs.profile_report import page
from coldstream.jobs.profile_result import decode_result, encode_result
from coldstream.jobs.profile_sample import MAX_POSITIONS, Sample, Seen
from coldstream.jobs.profile_tables import Prices, Profile, tables
from coldstream.jobs.profile_words import money, number, plain, price, size, span, times
from coldstream.jobs.report import JobReport
from coldstream.jobs.session import Remote
from coldstream.jobs.snapshots import TableSnapshot
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.osiris.chunk import Chunk, iter_chunks
from coldstream.osiris.segment import SEGMENT_HEADER_SIZE
from coldstream_devkit.fragments import START_MS
from tests.glue.conftest import Tier
from tests.glue.streams import DEEP, HOLED

DATA = Path(__file__).parents[1] / "data"
FIXTURES = {
    each["path"]: each for each in json.loads((DATA / "fixtures.json").read_text())["streams"]
}
HOUR_MS = 3_600_000
NOW_MS = START_MS + 10_000
PRICES = Prices(storage=0.023, put=0.005)
Rows = Callable[[str], list[dict[str, Any]]]


def settings(tmp_path: Path, **changes: Any) -> ProfileSettings:
    given = ProfileSettings(
        snapshot=TableSnapshot(f"file://{tmp_path}/", NOW_MS),
        streams=".*",
        since_ms=0,
        bucket_ms=100,
        sample_bytes=2**30,
        max_fragments=1000,
        prices=PRICES,
    )
    return replace(given, **changes)


def chunks(name: str) -> Iterator[Chunk]:
    for path in sorted((DATA / name).glob("*.segment")):
        yield from iter_chunks(path.read_bytes(), SEGMENT_HEADER_SIZE)


def remote(tier: Tier) -> Remote:
    return Remote(tier.store, tier.catalog, tier.policies, Place("b", "t", tier.prefix))


def profiled(tier: Tier, chosen: ProfileSettings) -> dict[str, Profile]:
    """What a run would know, without Spark between driver and workers."""
    profiles, work = plan(remote(tier), list(tier.catalog.streams()), chosen)
    for each in work:
        counted, sample = decode_result(
            encode_result(*perform(tier.store, tier.prefix, each, chosen))
        )
        profiles[each.stream].counted.merge(counted, chosen.bucket_ms)
        profiles[each.stream].sample.merge(sample)
    return profiles


def test_all_chunks_of_a_stream_are_counted_once_whatever_the_cut(
    tier: Tier, tmp_path: Path
) -> None:
    profile = profiled(tier, settings(tmp_path))[DEEP]

    total = profile.counted.all()
    assert (total.chunks, total.offsets, profile.counted.fragments) == (40, 400, 40)
    assert (profile.sample.messages, profile.sample.bytes) == (400, total.bytes)
    assert sum(each.chunks for each in profile.counted.buckets.values()) == 40
    assert len(profile.counted.buckets) == 4
    assert total.longest_gap_ms == 10


def test_a_damaged_item_of_the_table_keeps_no_stream_from_its_profile(
    tier: Tier, tmp_path: Path
) -> None:
    whole = tier.catalog.page(None, 1000)
    catalog = MemoryCatalog()
    catalog.page = lambda *_, **__: replace(  # type: ignore[method-assign]
        whole, damaged=(CorruptDataError("no item"),)
    )
    report, nothing_new = JobReport("profile"), settings(tmp_path, since_ms=2**62)

    run(cast(Any, None), replace(remote(tier), catalog=catalog), nothing_new, None, report)

    assert report.facts["streams"] == sum(wanted(each, ".*") for each in whole.items)
    assert "no item" in report.facts["failed"]


@pytest.mark.parametrize("path", FIXTURES)
def test_what_a_worker_sends_is_what_the_driver_gets(path: str) -> None:
    found = list(chunks(path))
    ids = [each.header.chunk_id for each in found]
    counted = count_chunks(
        np.array([*ids, found[-1].header.chunk_id + found[-1].header.records], np.uint64),
        np.array([each.header.timestamp for each in found], np.int64),
        np.cumsum([0, *(each.header.size for each in found)]),
        bucket_ms=1000,
        since_ms=0,
    )
    sample = Sample()
    sample.add(found)
    sample.fail(ValueError("an error \udcff of bytes that are no text"))

    got, learnt = decode_result(encode_result(counted, sample))

    assert encode_result(got, learnt) == encode_result(counted, sample)
    assert (got.first_ms, got.last_ms, got.fragments) == (counted.first_ms, counted.last_ms, 1)
    assert got.all().sizes.counts == counted.all().sizes.counts
    assert got.buckets.keys() == counted.buckets.keys()
    assert replace(learnt, sizes=sample.sizes) == sample
    assert learnt.sizes.counts == sample.sizes.counts


def test_a_window_leaves_out_what_is_older_and_a_hole_is_no_fragment(
    tier: Tier, tmp_path: Path
) -> None:
    late = settings(tmp_path, since_ms=START_MS + 200)

    found = profiled(tier, late)

    assert found[DEEP].counted.all().offsets == 200
    assert found[DEEP].window_ms == NOW_MS - (START_MS + 200)
    assert found[HOLED].counted.all().chunks == 0
    assert profiled(tier, settings(tmp_path))[HOLED].counted.all().offsets == 35


def test_more_fragments_than_allowed_are_told(tier: Tier, tmp_path: Path) -> None:
    profile = profiled(tier, settings(tmp_path, max_fragments=7))[DEEP]

    assert profile.counted.fragments == 7
    assert "only the newest 7" in profile.error


def test_without_a_sample_no_data_is_read(tier: Tier, tmp_path: Path) -> None:
    profile = profiled(tier, settings(tmp_path, sample_bytes=0))[DEEP]

    assert (profile.sample.bytes, profile.counted.fragments) == (0, 40)


def test_a_damaged_fragment_is_an_error_and_the_others_are_counted(
    tier: Tier, tmp_path: Path
) -> None:
    key = sorted(each for each in tier.store.objects if f"{DEEP}/data/" in each)[3]
    tier.store.objects[key] = bytes(len(tier.store.objects[key]))

    profile = profiled(tier, settings(tmp_path))[DEEP]

    assert profile.counted.fragments == 39
    (error,) = profile.sample.errors
    assert key in error


def test_a_damaged_chunk_in_the_sample_is_an_error(tier: Tier, tmp_path: Path) -> None:
    key = sorted(each for each in tier.store.objects if f"{DEEP}/data/" in each)[3]
    data = bytearray(tier.store.objects[key])
    data[80] ^= 1
    tier.store.objects[key] = bytes(data)

    profile = profiled(tier, settings(tmp_path))[DEEP]

    assert profile.counted.fragments == 40
    assert "offset 30" in profile.sample.errors[0]


@pytest.mark.parametrize("name", sorted(set(FIXTURES) - {"epochs-stale-4.3.6"}))
def test_a_sample_of_a_brokers_own_files_has_its_messages_and_entries(name: str) -> None:
    fixture, sample = FIXTURES[name], Sample()

    sample.add(chunks(name))

    assert sample.errors == []
    assert sample.messages == fixture["messages"]
    assert sample.message_bytes == fixture["body_bytes"]
    assert sample.chunks == fixture["chunk_types"]["user"]
    tracking = sum(fixture["chunk_types"].values()) - fixture["chunk_types"]["user"]
    assert sample.tracking_chunks == tracking
    entries = fixture["entry_kinds"]
    assert sample.simple == entries.get("simple", 0)
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    assert {each: one.sub_batches for each, one in sample.codecs.items()} == {
        names[int(kind[4:])]: count for kind, count in entries.items() if kind != "simple"
    }
    assert sample.sizes.total == sample.messages


@pytest.mark.parametrize("name", ["dedup-3.10.8", "dedup-4.3.6"])
def test_producers_and_consumers_are_where_the_broker_says(name: str) -> None:
    fixture, sample = FIXTURES[name], Sample()

    sample.add(chunks(name))

    assert {ref: seen.value for ref, seen in sample.publishers.items()} == fixture[
        "publisher_sequences"
    ]
    newest = {ref: positions[-1].value for ref, positions in sample.consumers.items()}
    assert newest.items() >= fixture["stored_offsets"].items()


@pytest.mark.parametrize("name", ["dedup-4.3.6", "codecs-4.3.6"])
@pytest.mark.parametrize("at", [1, 7, 30])
def test_samples_of_parts_merge_to_the_sample_of_the_whole(name: str, at: int) -> None:
    everything = list(chunks(name))
    whole, head, tail = Sample(), Sample(), Sample()
    whole.add(everything)
    head.add(everything[:at])
    tail.add(everything[at:])

    head.merge(tail)

    assert (head.messages, head.codecs, head.publishers, head.consumers) == (
        whole.messages,
        whole.codecs,
        whole.publishers,
        whole.consumers,
    )
    assert head.sizes.counts == whole.sizes.counts


def test_a_chunk_with_a_cut_entry_is_an_error_with_its_offset() -> None:
    chunk = next(chunks("plain-3.10.8"))
    cut_chunk = replace(chunk, header=replace(chunk.header, entries=chunk.header.entries + 1))
    sample = Sample()

    sample.add([cut_chunk])

    assert sample.messages == 0
    assert "offset 0" in sample.errors[0]


def test_many_stored_offsets_are_thinned_and_the_newest_stays() -> None:
    sample, more = Sample(), Sample()
    for each, base in ((sample, 0), (more, 5000)):
        each.consumers["c"] = [Seen(base + n, base + n, n) for n in range(2 * MAX_POSITIONS)]

    sample.merge(more)

    assert len(sample.consumers["c"]) <= 2 * MAX_POSITIONS
    assert sample.consumers["c"][-1].value == 5000 + 2 * MAX_POSITIONS - 1


@given(
    st.lists(
        st.tuples(st.integers(1, 1000), st.integers(0, 10**9), st.integers(49, 10**6)), min_size=1
    ),
    st.integers(0, 60),
)
def test_counting_in_parts_is_counting_at_once(rows: list[tuple[int, int, int]], at: int) -> None:
    at = min(at, len(rows) - 1)

    def count(part: list[tuple[int, int, int]]) -> Counted:
        lengths, times, sizes = (np.array(each, np.int64) for each in zip(*part, strict=True))
        return count_chunks(
            np.append(0, lengths.cumsum()).astype(np.uint64),
            times,
            np.append(0, sizes.cumsum()),
            bucket_ms=10**7,
            since_ms=0,
        )

    whole, merged = count(rows), Counted()
    for part in (rows[:at], rows[at:]):
        if part:
            merged.merge(count(part), 10**7)

    assert {
        n: (b.chunks, b.offsets, b.bytes, b.longest_gap_ms) for n, b in whole.buckets.items()
    } == {n: (b.chunks, b.offsets, b.bytes, b.longest_gap_ms) for n, b in merged.buckets.items()}
    assert (whole.first_ms, whole.last_ms, whole.back) == (
        merged.first_ms,
        merged.last_ms,
        merged.back,
    )
    assert whole.all().sizes.counts == merged.all().sizes.counts


@given(st.lists(st.integers(1, 2**40), min_size=1), st.sampled_from([0.1, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_ten_percent(values: list[int], part: float) -> None:
    counted = Histogram()
    counted.add(np.array(values))

    exact = sorted(values)[max(0, int(np.ceil(part * len(values))) - 1)]

    found = counted.quantile(part)
    assert found is not None
    assert abs(found - exact) <= max(1, 0.1 * exact)


def test_bars_have_no_gaps_and_hold_everything() -> None:
    counted = Histogram()
    counted.add(np.array([1, 3, 3, 200, 255, 256]))

    assert counted.bars() == [
        (2, 1),
        (4, 2),
        (8, 0),
        (16, 0),
        (32, 0),
        (64, 0),
        (128, 0),
        (256, 2),
        (512, 1),
    ]
    assert Histogram().bars() == []
    assert Histogram().quantile(0.5) is None
    assert middle(0) == 1


def test_work_has_every_fragment_once_and_the_newest_in_the_sample() -> None:
    entries = [Entry(n, n + 1, 0, 0, EntryKind.FRAGMENT, 10, 1, 1, n) for n in range(1000)]

    work = cut("s", entries, 100)

    assert [each.uid for one in work for each in Entries(one.entries)] == list(range(1000))
    assert [one.newest is None for one in work] == [True] * (len(work) - 1) + [False]
    assert sum(len(one.sampled) for one in work) == 10
    last = work[-1]
    assert len(Entries(last.entries)) - 1 in last.sampled
    assert 0 in work[0].sampled
    assert cut("s", [], 100) == []


def test_only_live_streams_that_match_as_a_whole_are_looked_at(tier: Tier) -> None:
    item = tier.catalog.get(DEEP)
    assert item is not None

    assert wanted(item, "deep")
    assert wanted(item, "__deep_[0-9]+")
    assert not wanted(item, "dee")
    assert wanted(item, "")


def test_rows_say_what_the_counts_say(tier: Tier, tmp_path: Path, rows: Rows) -> None:
    report = JobReport("profile")
    chosen = settings(tmp_path)

    write(profiled(tier, chosen).values(), chosen, None, report)

    by_name = {each["stream"]: each for each in rows("profile_streams")}
    deep = by_name[DEEP]
    seconds = (NOW_MS - START_MS) / 1000
    assert deep["offsets"] == 400
    assert deep["offsets_per_second"] == pytest.approx(400 / seconds)
    assert deep["growth_bytes_per_day"] == pytest.approx(deep["bytes"] * 86400 / seconds)
    assert deep["storage_cost_month"] == pytest.approx(deep["stored_bytes"] * 0.023 / 1e9)
    assert deep["in_sub_batches"] == 0
    assert sum(each["offsets"] for each in rows("profile_rates") if each["stream"] == DEEP) == 400
    sizes = [each for each in rows("profile_sizes") if each["stream"] == DEEP]
    assert sum(each["count"] for each in sizes if each["kind"] == "message") == 400
    html = (tmp_path / "reports" / f"{chosen.snapshot.id}.html").read_text()
    assert report.facts["report"].endswith(".html")
    assert report.facts["failed"] == []
    assert DEEP in html
    MemoryMetrics().put(report.metrics)


class Tags(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.policy = ""
        self._texts: list[str] = []
        self._kinds: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        named = dict(attrs)
        assert not [name for name in named if name.startswith("on")]
        assert not [name for name in ("src", "href") if named.get(name, "#")[:1] != "#"]
        if tag == "meta" and "http-equiv" in named:
            self.policy = named["content"]
        if tag == "script":
            self._texts.append("")
            self._kinds.append(named.get("type"))
        if tag not in ("meta", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self._texts[-1] += data

    @property
    def scripts(self) -> list[str]:
        found = zip(self._texts, self._kinds, strict=True)
        return [text for text, kind in found if kind is None]

    @property
    def data(self) -> Any:
        (found,) = set(self._texts) - set(self.scripts)
        return json.loads(found)


def test_the_page_escapes_what_clients_call_themselves_and_loads_nothing(tier: Tier) -> None:
    item = tier.catalog.get(DEEP)
    assert item is not None
    hostile = "</td><script>alert('x')</script><img src=x onerror=alert(1)>\""
    sample = Sample()
    sample.add(chunks("dedup-4.3.6"))
    sample.publishers[hostile] = Seen(2**64 - 1, 2**64 - 1, -(2**63))
    sample.consumers[hostile] = [Seen(2**64 - 1, 0, 2**63 - 1)]
    sample.errors.append(hostile)
    counted = Counted({NOW_MS // HOUR_MS: Bucket(1, 1, 1, 0)}, NOW_MS, NOW_MS, 1, 0)
    profile = Profile(replace(item, name=QueueName("c", hostile, hostile)), 1000, counted, sample)

    html = page(tables([profile], bucket_ms=HOUR_MS, prices=PRICES), taken_ms=NOW_MS, prices=PRICES)

    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert not {"img", "link", "iframe"} & set(tags.seen)
    assert "alert('x')" not in "".join(tags.scripts)
    assert len(tags.data) == html.count("<canvas") == 3
    assert len(html) < 400_000


def test_a_page_runs_its_own_scripts_only_and_fetches_nothing(tier: Tier) -> None:
    tags = Tags()
    tags.feed(page(tables([], bucket_ms=HOUR_MS, prices=PRICES), taken_ms=0, prices=PRICES))

    assert tags.scripts == list(web.scripts())
    digests = [base64.b64encode(sha256(each.encode()).digest()).decode() for each in tags.scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in digests)
    assert tags.policy == (f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}")
    assert all("</script" not in each for each in tags.scripts)
    assert web.data(["</script><!--"]) == '["\\u003c/script>\\u003c!--"]'


def test_a_page_of_nothing_is_a_page() -> None:
    tags = Tags()

    tags.feed(page(tables([], bucket_ms=HOUR_MS, prices=PRICES), taken_ms=0, prices=PRICES))

    assert tags.open == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (plain(0), "0"),
        (plain(1e-7), "0.0000001"),
        (plain(1e-30), "0"),
        (plain(0.12345), "0.123"),
        (plain(999.6), "1,000"),
        (plain(float("inf")), "–"),
        (times(124.0), "120×"),
        (size(999.4), "999 B"),
        (size(999.6), "1 kB"),
        (size(7e18, "/s"), "7,000 PB/s"),
        (number(3e19), "30,000,000 T"),
        (number(0.00012, "/s"), "0.00012/s"),
        (span(5e9), "57,900 d"),
        (span(1e-6), "0.000001 s"),
        (money(1e-9), "&lt; 0.01"),
        (price(0.0000004), "0.0000004"),
        (size(None), "–"),
    ],
)
def test_no_value_is_told_with_an_exponent(words: str, expected: str) -> None:
    assert escape(words) == expected


def test_charts_have_a_bar_a_point_and_a_gap_where_there_is_none() -> None:
    points = [(0, 5.0), (100, 7.0), (300, 1.0)]

    chart = time_chart(points, step_ms=100, begin_ms=0, end_ms=400, label="l", unit="bytes")

    assert chart.values == (5.0, 7.0, None, 1.0)
    many = [(n, float(n % 7)) for n in range(5000)]
    dense = time_chart(many, step_ms=1, begin_ms=0, end_ms=5000, label="l", unit="bytes")
    assert 200 <= len(dense.values) <= MAX_BARS
    assert set(dense.values[:-1]) == {6.0}  # the greatest of its neighbours
    bins = histogram([(2, 1), (4, 0), (8, 3)], label="l", text=size)
    assert (bins.labels[0], bins.values) == ("1 B to 2 B", (25.0, 0.0, 75.0))
    assert sparkline([]) == sparkline([0.0, 0.0]) == ""
    assert "polyline" in sparkline([1.0, 2.0])


def test_a_column_is_sorted_by_its_value_and_nothing_comes_last(tier: Tier) -> None:
    item = tier.catalog.get(DEEP)
    assert item is not None
    counted = Counted({NOW_MS // HOUR_MS: Bucket(1, 1, 1, 0)}, NOW_MS, NOW_MS, 1, 0)
    made = tables([Profile(item, 1000, counted, Sample())], bucket_ms=HOUR_MS, prices=PRICES)

    html = page(made, taken_ms=NOW_MS, prices=PRICES)

    assert '<td data-sort="-1">–</td>' in html  # no message was sampled
    assert 'data-sort-method="number">Peak<small>bytes/s</small>' in html
