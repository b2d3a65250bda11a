"""The page of the job profile: one file of HTML that needs nothing else, made from its tables.

Names of queues, publishers and consumers come from clients, so all text is escaped, and the page
runs no script but its own (`web.policy`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from coldstream.jobs import web
from coldstream.jobs.profile_charts import Chart, histogram, sparkline, time_chart
from coldstream.jobs.profile_tables import CONSUMERS, PRODUCERS, RATES, SIZES, STREAMS, Prices
from coldstream.jobs.profile_words import money, number, percent, price, size, span, times

Row = Mapping[str, Any]

#: Streams that get charts, those with the most bytes; the others are in the list.
MAX_DETAILED = 25
_MAX_ROWS = 20


def page(tables: Mapping[str, pa.Table], *, taken_ms: int, prices: Prices) -> str:
    """The page.

    Args:
        tables: the rows of all tables of the job, by name.
        taken_ms: when the profile was taken, ms since the Unix epoch.
        prices: that its costs stand on.
    """
    streams: list[Row] = tables[STREAMS.name].to_pylist()
    streams.sort(key=lambda row: (-row["bytes"], row["stream"]))
    rates, sizes, producers, consumers = (
        _by_stream(tables[each.name]) for each in (RATES, SIZES, PRODUCERS, CONSUMERS)
    )
    when = f"{datetime.fromtimestamp(taken_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{web.policy()}">',
        f"<title>Streams, {when}</title><style>{web.style()}</style></head><body><main>",
        f'<h1>What the streams are like</h1><p class="soft">Taken {when} from the segments in S3;'
        " no broker was asked. A click on a column's head sorts its table.</p>"
        '<noscript><p class="warn">The charts need scripts; the tables have all there is.</p>'
        "</noscript>",
        _tiles(streams),
        _overview(streams, rates),
    ]
    charts: list[Chart] = []
    for row in streams[:MAX_DETAILED]:
        name = row["stream"]
        mine = [
            *_rate_charts(rates.get(name, []), taken_ms),
            *_histograms(sizes.get(name, [])),
        ]
        parts.append(
            _detail(
                row,
                [_canvas(len(charts) + number, each) for number, each in enumerate(mine)],
                producers.get(name, []),
                [each for each in consumers.get(name, []) if each["newest"]],
            )
        )
        charts += mine
    if len(streams) > MAX_DETAILED:
        parts.append(
            f'<p class="soft">Charts of the {MAX_DETAILED} streams with the most bytes. The tables'
            f" {STREAMS.name}, {RATES.name} and {SIZES.name} have all of them.</p>"
        )
    parts.append(_footnote(prices))
    drawn = [{"id": _chart_id(n), **asdict(each)} for n, each in enumerate(charts)]
    parts.append(f'</main><script type="application/json" id="charts">{web.data(drawn)}</script>')
    parts += [f"<script>{each}</script>" for each in web.scripts()]
    parts.append("</body></html>")
    return "\n".join(parts)


def _by_stream(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in table.to_pylist():
        found.setdefault(row["stream"], []).append(row)
    return found


def _tiles(streams: Sequence[Row]) -> str:
    def total(name: str) -> float:
        return sum(row[name] or 0 for row in streams)

    tiles = (
        ("Streams", f"{len(streams):,}"),
        ("In S3", size(total("stored_bytes"))),
        ("In the window", size(total("bytes"))),
        ("Growth a day", size(total("growth_bytes_per_day"))),
        ("Storage a month", money(total("storage_cost_month"))),
        ("The same in a year", money(total("storage_cost_month_in_a_year"))),
        ("Writing a month, at most", money(total("request_cost_month"))),
    )
    inside = "".join(
        f'<div class="tile"><span class="soft">{label}</span><b>{escape(value)}</b></div>'
        for label, value in tiles
    )
    return f'<div class="tiles">{inside}</div>'


#: Head of a column, its unit, and the field of a row that it is sorted by.
_OVERVIEW = (
    ("Mean", "bytes/s", "bytes_per_second"),
    ("Peak", "bytes/s", "peak_bytes_per_second"),
    ("Offsets", "offsets/s", "offsets_per_second"),
    ("Chunk", "bytes, median", "chunk_bytes_p50"),
    ("Batch", "offsets, median", "chunk_offsets_p50"),
    ("Message", "bytes, median", "message_bytes_p50"),
    ("Smaller by", "factor", "compression"),
    ("Longest gap", "time", "longest_gap_seconds"),
    ("Growth", "bytes/day", "growth_bytes_per_day"),
    ("Storage", "cost/month", "storage_cost_month"),
)


def _overview(streams: Sequence[Row], rates: Mapping[str, Sequence[Row]]) -> str:
    rows = []
    for row in streams:
        name = row["queue"] or row["stream"]
        line = [each["bytes_per_second"] for each in rates.get(row["stream"], [])]
        words = (
            size(row["bytes_per_second"], "/s"),
            size(row["peak_bytes_per_second"], "/s"),
            number(row["offsets_per_second"], "/s"),
            size(row["chunk_bytes_p50"]),
            number(row["chunk_offsets_p50"]),
            size(row["message_bytes_p50"]),
            times(row["compression"]),
            span(row["longest_gap_seconds"]),
            size(row["growth_bytes_per_day"], "/d"),
            money(row["storage_cost_month"]),
        )
        warning = (
            f' <span class="warn" title="{escape(row["error"])}">!</span>' if row["error"] else ""
        )
        cells = "".join(
            _cell(text, row[field]) for text, (*_, field) in zip(words, _OVERVIEW, strict=True)
        )
        rows.append(
            f'<tr><td class="name"><a href="#{_section_id(row)}">{escape(name)}</a>{warning}</td>'
            f"<td>{sparkline(_thinned(line))}</td>{cells}</tr>"
        )
    heads = "".join(
        f'<th data-sort-method="number">{head}<small>{unit}</small></th>'
        for head, unit, _ in _OVERVIEW
    )
    return (
        '<section><table class="sortable"><thead><tr><th data-sort-reverse>Stream</th>'
        f'<th data-sort-method="none">Bytes over time</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></section>"
    )


def _cell(words: str, value: float | None) -> str:
    """A cell that is sorted by its value, not by its words; nothing is less than anything."""
    by = "-1" if value is None else price(value)
    return f'<td data-sort="{by}">{escape(words)}</td>'


def _section_id(row: Row) -> str:
    return f"stream-{escape(row['stream'])}"


def _chart_id(number: int) -> str:
    return f"chart-{number}"


def _canvas(number: int, chart: Chart) -> str:
    label = escape(chart.label)
    return (
        f'<div><h3>{label}</h3><div class="chart"><canvas id="{_chart_id(number)}" role="img"'
        f' aria-label="{label}"></canvas></div></div>'
    )


def _detail(
    row: Row, charts: Sequence[str], producers: Sequence[Row], consumers: Sequence[Row]
) -> str:
    title = escape(row["queue"] or row["stream"])
    where = escape(" · ".join(each for each in (row["vhost"], row["stream"]) if each))
    parts = [f'<section id="{_section_id(row)}"><h2>{title}</h2><p class="soft">{where}</p>']
    if row["error"]:
        parts.append(f'<p class="warn">{escape(row["error"])}</p>')
    parts.append(f'<p>{_sentence(row)}</p><div class="charts">')
    parts += charts
    if producers:
        parts.append(_producers(producers))
    if consumers:
        parts.append(_consumers(consumers))
    parts.append("</div></section>")
    return "".join(parts)


def _rate_charts(rates: Sequence[Row], taken_ms: int) -> Iterator[Chart]:
    if not rates:
        return
    step = round(rates[0]["seconds"] * 1000)
    begin = _ms(rates[0]["time"])
    end = max(_ms(rates[-1]["time"]) + step, min(taken_ms, begin + 10**10))
    for column, label, unit in (
        ("bytes_per_second", "Bytes a second", "bytes/s"),
        ("offsets_per_second", "Offsets a second", "offsets/s"),
    ):
        points = [(_ms(each["time"]), each[column]) for each in rates]
        yield time_chart(
            points, step_ms=step, begin_ms=begin, end_ms=end, label=f"{label}, UTC", unit=unit
        )


def _histograms(sizes: Sequence[Row]) -> Iterator[Chart]:
    for kind, label, text in (
        ("message", "Message size (sample), % of messages", size),
        ("chunk", "Chunk size, % of chunks", size),
        ("chunk_offsets", "Offsets in a chunk: how well producers batch, % of chunks", number),
    ):
        bars = [(each["below"], each["count"]) for each in sizes if each["kind"] == kind]
        if bars:
            yield histogram(bars, label=label, text=text)


def _producers(producers: Sequence[Row]) -> str:
    newest = sorted(producers, key=lambda each: each["seen"], reverse=True)
    return _table(
        "Named producers, the last seen first",
        ("Reference", "Last id", "Seen, UTC"),
        [
            (
                _name(each["reference"]),
                _count(each["last_sequence"]),
                _seen(each["seen"]),
            )
            for each in newest
        ],
    )


def _consumers(consumers: Sequence[Row]) -> str:
    behind = sorted(consumers, key=lambda each: each["lag_now"], reverse=True)
    return _table(
        "Consumers that store their offset here, the furthest behind first",
        ("Reference", "Stored offset", "Behind the end in S3, offsets", "Seen, UTC"),
        [
            (
                _name(each["reference"]),
                _count(each["stored_offset"]),
                _count(each["lag_now"]),
                _seen(each["seen"]),
            )
            for each in behind
        ],
    )


def _name(text: str) -> str:
    return f'<td class="name">{escape(text)}</td>'


def _count(value: int) -> str:
    return f'<td data-sort="{value}">{value:,}</td>'


def _seen(at: datetime) -> str:
    return f'<td data-sort="{_ms(at)}">{at:%Y-%m-%d %H:%M}</td>'


def _sentence(row: Row) -> str:
    """The findings in words."""
    words = [
        f"{number(row['offsets'])} offsets and {size(row['bytes'])} in"
        f" {span(row['window_days'] * 86400)}, {number(row['chunks'])} chunks of"
        f" {size(row['chunk_bytes_p50'])} with {number(row['chunk_offsets_p50'])} offsets each"
        " (medians)."
    ]
    if row["message_bytes_mean"] is not None:
        words.append(f"A message has {size(row['message_bytes_mean'])} on average;")
        words.append(f"{percent(row['overhead'])} of the bytes are headers and trailers.")
    if row["in_sub_batches"]:
        codecs = ", ".join(escape(each["codec"]) for each in row["codecs"])
        smaller = f", {times(row['compression'])} smaller" if row["compression"] else ""
        words.append(f"{percent(row['in_sub_batches'])} come in sub-batches ({codecs}{smaller}).")
    if row["clock_jumps"]:
        words.append(f"The broker's clock went back {row['clock_jumps']} times.")
    return " ".join(words)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are HTML; the first column is text, the others are numbers."""
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows[:_MAX_ROWS])
    more = f'<p class="soft">and {len(rows) - _MAX_ROWS} more</p>' if len(rows) > _MAX_ROWS else ""
    first, *others = head
    titles = "".join(f'<th data-sort-method="number">{each}</th>' for each in others)
    return (
        f'<div><h3>{title}</h3><table class="sortable">'
        f"<thead><tr><th data-sort-reverse>{first}</th>{titles}</tr></thead>"
        f"<tbody>{lines}</tbody></table>{more}</div>"
    )


def _footnote(prices: Prices) -> str:
    return (
        '<p class="soft">Rates, chunks and batches are counted from the indexes of all fragments in'
        " the window; offsets include those of tracking chunks. Messages, codecs, producers and"
        " consumers are from a sample, which has the newest fragment. Quantiles are within 9 %."
        f" Costs stand on {price(prices.storage)} for a GB and month and {price(prices.put)} for a"
        " thousand PUT requests: arguments of the job.</p>"
    )


def _thinned(values: Sequence[float]) -> list[float]:
    """At most 118 values, each the greatest of its neighbours."""
    step = -(-len(values) // 118) or 1
    return [max(values[n : n + step]) for n in range(0, len(values), step)]


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
