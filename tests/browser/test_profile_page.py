"""The page of the job profile in a browser: its script runs, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coldstream.jobs.profile_count import Bucket, Counted, Histogram
from coldstream.jobs.profile_report import page
from coldstream.jobs.profile_sample import Sample, Seen
from coldstream.jobs.profile_tables import Prices, Profile, tables
from coldstream.jobs.profile_words import number, size
from coldstream.manifest.catalog import CatalogItem, QueueName
from tests.browser.conftest import Browser

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
BEGIN_MS = 497_000 * HOUR_MS
NOW_MS = BEGIN_MS + 4 * HOUR_MS
PRICES = Prices(storage=0.023, put=0.005)
HOSTILE = "</td><script>document.title='ran'</script><img src=x onerror=alert(1)>\"'&amp;"

#: Queue, and its bytes in each hour. In the order of text, 9 would come after 80.
QUEUES = {"beta": [80, 9, 0, 20], "alpha": [9, 9, 9, 9], "gamma": [700, 0, 0, 300], "delta": []}


def profile(queue: str, hours: list[int]) -> Profile:
    counted = Counted(first_ms=BEGIN_MS, last_ms=NOW_MS, fragments=1)
    for hour, count in enumerate(hours):
        if count:
            bucket = Bucket(1, 10, count * 1000, 0)
            bucket.sizes.add(np.array([count * 1000]))
            bucket.lengths.add(np.array([10]))
            counted.buckets[BEGIN_MS // HOUR_MS + hour] = bucket
    sample = Sample(sizes=Histogram())
    sample.consumers[f"reader of {queue}"] = [Seen(3, 5, BEGIN_MS)]
    sample.publishers["9"], sample.publishers["10"] = Seen(9, 5, BEGIN_MS), Seen(80, 6, BEGIN_MS)
    item = CatalogItem(f"__{queue}_1", "t", next_offset=9, name=QueueName("c", "/", queue))
    return Profile(item, NOW_MS - BEGIN_MS, counted, sample)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes the page of some profiles, after an edit of its text."""

    def write(*profiles: Profile, edit: Callable[[str], str] = str) -> Path:
        rows = tables(profiles, bucket_ms=HOUR_MS, prices=PRICES)
        path = tmp_path / "page.html"
        path.write_text(edit(page(rows, taken_ms=NOW_MS, prices=PRICES)), "utf-8")
        return path

    return write


@pytest.fixture
def opened(browser: Browser, written: Callable[..., Path]) -> Browser:
    """A browser with the page of `QUEUES` open."""
    browser.open(written(*(profile(*each) for each in QUEUES.items())))
    return browser


def names(browser: Browser) -> list[str]:
    """The first column of the first table, as it is shown."""
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('table.sortable')[0].tBodies[0].rows]"
        ".map(row => row.cells[0].innerText)"
    )
    return found


def test_the_page_runs_without_a_complaint_and_asks_for_nothing_but_itself(
    opened: Browser, tmp_path: Path
) -> None:
    assert opened.complaints() == []
    assert opened.requests() == [(tmp_path / "page.html").as_uri()]


def test_every_chart_is_drawn_in_the_colour_of_the_bars(opened: Browser) -> None:
    charts = opened.run(
        """
        const style = getComputedStyle(document.documentElement);
        const probe = document.createElement("canvas").getContext("2d");
        probe.fillStyle = style.getPropertyValue("--bar").trim();
        probe.fillRect(0, 0, 1, 1);
        const bar = probe.getImageData(0, 0, 1, 1).data;
        return [...document.querySelectorAll("canvas")].map(canvas => {
          const {width, height} = canvas;
          const seen = width && height
            ? canvas.getContext("2d").getImageData(0, 0, width, height).data : [];
          const columns = new Set();
          for (let at = 0; at < seen.length; at += 4) {
            if ([0, 1, 2, 3].every(n => seen[at + n] === bar[n])) {
              columns.add(at / 4 % width);
            }
          }
          return {id: canvas.id, width, columns: columns.size};
        });
        """
    )
    drawn = opened.run(
        "return JSON.parse(document.getElementById('charts').textContent)"
        ".map(each => [each.id, each.values])"
    )

    assert [each["id"] for each in charts] == [name for name, _ in drawn]
    assert len(charts) == 3 * 4  # two rates and two histograms of each that has a chunk
    for chart, (_, values) in zip(charts, drawn, strict=True):
        there = sum(value is not None and value > 0 for value in values)
        # Bars fill nine tenths of their part, and the axes take some of the width.
        least = 0.5 * chart["width"] * there / len(values)
        assert least < chart["columns"] < chart["width"] * there / len(values), chart


@pytest.mark.parametrize(
    ("head", "first", "second"),
    [
        # By value, the greatest first; nothing is less than anything.
        (3, ["gamma", "beta", "alpha", "delta"], ["delta", "alpha", "beta", "gamma"]),  # mean
        (4, ["gamma", "beta", "alpha", "delta"], ["delta", "alpha", "beta", "gamma"]),  # peak
        # Names begin with a.
        (1, ["alpha", "beta", "delta", "gamma"], ["gamma", "delta", "beta", "alpha"]),
    ],
)
def test_a_click_on_a_head_sorts_by_value_and_another_the_other_way(
    opened: Browser, head: int, first: list[str], second: list[str]
) -> None:
    selector = f"section:first-of-type table.sortable thead th:nth-child({head})"

    opened.click(selector)
    once = names(opened)
    opened.click(selector)

    assert (once, names(opened)) == (first, second)
    assert opened.complaints() == []


def test_the_column_with_the_lines_is_no_order(opened: Browser) -> None:
    before = names(opened)

    opened.click("section:first-of-type table.sortable thead th:nth-child(2)")

    assert names(opened) == before


def test_numbers_of_a_small_table_are_sorted_as_numbers(opened: Browser) -> None:
    opened.run("document.querySelector('section[id] table').id = 'small'")

    opened.click("#small th:nth-child(2)")

    ids = opened.run("return [...document.querySelectorAll('#small td:nth-child(2)')]"
                     ".map(cell => cell.innerText)")  # fmt: skip
    assert ids == ["80", "9"]


@pytest.mark.parametrize("value", [0, 0.00012, 3.14159, 999.4, 999.6, 1234, 4.5678e7, 7e18])
def test_the_script_says_sizes_and_numbers_as_the_tables_do(opened: Browser, value: float) -> None:
    said = opened.run(
        """
        const found = {};
        for (const each of JSON.parse(document.getElementById("charts").textContent)) {
          const chart = Chart.getChart(document.getElementById(each.id));
          found[each.unit] = chart.options.plugins.tooltip.callbacks.label(
            {parsed: {y: arguments[0]}});
        }
        return found;
        """,
        value,
    )

    assert said["bytes/s"] == size(value, "/s")
    assert said["offsets/s"].removesuffix(" offsets/s").strip() == number(value)


def test_what_clients_call_themselves_is_text_and_runs_nowhere(
    browser: Browser, written: Callable[..., Path]
) -> None:
    hostile = profile("orders", [5])
    hostile.sample.publishers[HOSTILE] = Seen(1, 1, BEGIN_MS)
    hostile.sample.errors.append(HOSTILE)
    hostile.item = replace(hostile.item, name=QueueName("c", HOSTILE, HOSTILE))
    path = written(hostile)

    browser.open(path)

    assert names(browser)[0].startswith(HOSTILE)
    assert browser.run("return document.title").startswith("Streams, ")
    assert browser.run("return document.images.length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]


def test_what_got_into_the_page_in_spite_of_all_runs_nowhere_and_fetches_nothing(
    browser: Browser, written: Callable[..., Path]
) -> None:
    smuggled = (
        "<script>document.title='ran'</script>"
        "<b onclick=\"document.title='ran'\" id=trap>x</b>"
        "<img src=https://example.com/beacon>"
    )
    path = written(
        profile("orders", [5]), edit=lambda html: html.replace("</main>", f"{smuggled}</main>")
    )

    browser.open(path)
    browser.click("#trap")

    assert browser.run("return document.title").startswith("Streams, ")
    refused = browser.complaints()
    assert len(refused) == 3
    assert all("Content Security Policy" in each for each in refused)
    assert browser.requests() == [path.as_uri()]


def test_without_its_policy_the_same_would_run_and_be_seen(
    browser: Browser, written: Callable[..., Path]
) -> None:
    """The proof that the tests above look in the right place."""
    smuggled = "<script>document.title='ran'</script><img src=https://example.com/beacon>"
    path = written(
        profile("orders", [5]),
        edit=lambda html: html.replace("Content-Security-Policy", "nothing").replace(
            "</main>", f"{smuggled}</main>"
        ),
    )

    browser.open(path)

    assert browser.run("return document.title") == "ran"
    assert "https://example.com/beacon" in browser.requests()
    assert any("beacon" in each for each in browser.complaints())
