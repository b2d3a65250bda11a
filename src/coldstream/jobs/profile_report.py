"""The page of the job profile: one file of HTML that needs nothing else, made from its tables.

Names of queues, publishers and consumers come from clients, so all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import pyarrow as pa

from coldstream.jobs.profile_svg import histogram, sparkline, time_bars
from coldstream.jobs.profile_tables import CONSUMERS, PRODUCERS, RATES, SIZES, STREAMS, Prices

Row = Mapping[str, Any]

#: Streams that get charts, those with the most bytes; the others are in the list.
MAX_DETAILED = 25
_MAX_ROWS = 20

_STYLE = """
:root { --ink: #1d2433; --soft: #667085; --line: #e4e7ec; --back: #f7f8fa; --card: #fff;
  --bar: #3b6fd4; --warn: #b54708; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2c3444;
  --back: #11151d; --card: #181d28; --bar: #6f9bf0; --warn: #f5a45d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 0; }
h3 { font-size: 12px; font-weight: 600; color: var(--soft); margin: 0 0 4px; }
p { margin: 4px 0; } .soft { color: var(--soft); } .warn { color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 18px 0; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; } .tile b { display: block; font-size: 20px; font-weight: 600; }
section { padding: 18px; margin: 14px 0; overflow-x: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr));
  gap: 16px 22px; margin-top: 14px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { font-size: 12px; font-weight: 600; color: var(--soft); text-align: right; padding: 4px 8px;
  white-space: nowrap; }
td { text-align: right; padding: 5px 8px; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.name { max-width: 280px; overflow: hidden; text-overflow: ellipsis; }
a { color: inherit; }
.chart { width: 100%; height: auto; display: block; }
.chart text { font-size: 10.5px; fill: var(--soft); }
.chart line { stroke: var(--line); } .chart rect { fill: var(--bar); }
.spark { width: 120px; height: 24px; display: block; }
.spark polyline { fill: none; stroke: var(--bar); stroke-width: 1.4; }
"""


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
        f"<title>Streams, {when}</title><style>{_STYLE}</style></head><body><main>",
        f'<h1>What the streams are like</h1><p class="soft">Taken {when} from the segments in S3;'
        " no broker was asked.</p>",
        _tiles(streams),
        _overview(streams, rates),
    ]
    for row in streams[:MAX_DETAILED]:
        name = row["stream"]
        parts.append(
            _detail(
                row,
                rates.get(name, []),
                sizes.get(name, []),
                producers.get(name, []),
                [each for each in consumers.get(name, []) if each["newest"]],
                taken_ms,
            )
        )
    if len(streams) > MAX_DETAILED:
        parts.append(
            f'<p class="soft">Charts of the {MAX_DETAILED} streams with the most bytes. The tables'
            f" {STREAMS.name}, {RATES.name} and {SIZES.name} have all of them.</p>"
        )
    parts.append(_footnote(prices))
    parts.append("</main></body></html>")
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


def _overview(streams: Sequence[Row], rates: Mapping[str, Sequence[Row]]) -> str:
    head = ("Stream", "Bytes over time", "Bytes/s", "Peak", "Offsets/s", "Chunk", "Batch",
            "Message", "Smaller by", "Longest gap", "Growth/day", "Cost/month")  # fmt: skip
    rows = []
    for row in streams:
        name = row["queue"] or row["stream"]
        line = [each["bytes_per_second"] for each in rates.get(row["stream"], [])]
        cells = (
            sparkline(_thinned(line)),
            size(row["bytes_per_second"]),
            size(row["peak_bytes_per_second"]),
            number(row["offsets_per_second"]),
            size(row["chunk_bytes_p50"]),
            number(row["chunk_offsets_p50"]),
            size(row["message_bytes_p50"]),
            times(row["compression"]),
            span(row["longest_gap_seconds"]),
            size(row["growth_bytes_per_day"]),
            money(row["storage_cost_month"]),
        )
        warning = (
            f' <span class="warn" title="{escape(row["error"])}">!</span>' if row["error"] else ""
        )
        rows.append(
            f'<tr><td class="name"><a href="#{escape(row["stream"])}">{escape(name)}</a>{warning}'
            f"</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        )
    titles = "".join(f"<th>{each}</th>" for each in head)
    return f"<section><table><tr>{titles}</tr>{''.join(rows)}</table></section>"


def _detail(
    row: Row,
    rates: Sequence[Row],
    sizes: Sequence[Row],
    producers: Sequence[Row],
    consumers: Sequence[Row],
    taken_ms: int,
) -> str:
    title = escape(row["queue"] or row["stream"])
    where = escape(" · ".join(each for each in (row["vhost"], row["stream"]) if each))
    parts = [f'<section id="{escape(row["stream"])}"><h2>{title}</h2><p class="soft">{where}</p>']
    if row["error"]:
        parts.append(f'<p class="warn">{escape(row["error"])}</p>')
    parts.append(f"<p>{_sentence(row)}</p>")
    parts.append('<div class="charts">')
    parts += _rate_charts(rates, taken_ms)
    parts += _histograms(sizes)
    if producers:
        parts.append(_producers(producers))
    if consumers:
        parts.append(_consumers(consumers))
    parts.append("</div></section>")
    return "".join(parts)


def _rate_charts(rates: Sequence[Row], taken_ms: int) -> Iterator[str]:
    if not rates:
        return
    step = round(rates[0]["seconds"] * 1000)
    begin = _ms(rates[0]["time"])
    end = max(_ms(rates[-1]["time"]) + step, min(taken_ms, begin + 10**10))
    for column, label, text in (
        ("bytes_per_second", "Bytes a second", size),
        ("offsets_per_second", "Offsets a second", number),
    ):
        points = [(_ms(each["time"]), each[column]) for each in rates]
        chart = time_bars(points, step_ms=step, begin_ms=begin, end_ms=end, label=label, text=text)
        yield f"<div><h3>{label}</h3>{chart}</div>"


def _histograms(sizes: Sequence[Row]) -> Iterator[str]:
    for kind, label, text in (
        ("message", "Message size (sample)", size),
        ("chunk", "Chunk size", size),
        ("chunk_offsets", "Offsets in a chunk: how well producers batch", number),
    ):
        bars = [(each["below"], each["count"]) for each in sizes if each["kind"] == kind]
        if bars:
            yield f"<div><h3>{label}</h3>{histogram(bars, label=label, text=text)}</div>"


def _producers(producers: Sequence[Row]) -> str:
    newest = sorted(producers, key=lambda each: each["seen"], reverse=True)
    return _table(
        "Named producers, the last seen first",
        ("Reference", "Last id", "Seen"),
        [(each["reference"], f"{each['last_sequence']:,}", _at(each["seen"])) for each in newest],
    )


def _consumers(consumers: Sequence[Row]) -> str:
    behind = sorted(consumers, key=lambda each: each["lag_now"], reverse=True)
    return _table(
        "Consumers that store their offset here, the furthest behind first",
        ("Reference", "Stored offset", "Behind the end in S3", "Seen"),
        [
            (
                each["reference"],
                f"{each['stored_offset']:,}",
                f"{each['lag_now']:,}",
                _at(each["seen"]),
            )
            for each in behind
        ],
    )


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
        words.append(f"{100 * row['overhead']:.1f} % of the bytes are headers and trailers.")
    if row["in_sub_batches"]:
        codecs = ", ".join(escape(each["codec"]) for each in row["codecs"])
        smaller = f", {times(row['compression'])} smaller" if row["compression"] else ""
        words.append(
            f"{100 * row['in_sub_batches']:.0f} % come in sub-batches ({codecs}{smaller})."
        )
    if row["clock_jumps"]:
        words.append(f"The broker's clock went back {row['clock_jumps']} times.")
    return " ".join(words)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr>{''.join(f'<td class=name>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows[:_MAX_ROWS]
    )
    more = f'<p class="soft">and {len(rows) - _MAX_ROWS} more</p>' if len(rows) > _MAX_ROWS else ""
    titles = "".join(f"<th>{each}</th>" for each in head)
    return f"<div><h3>{title}</h3><table><tr>{titles}</tr>{lines}</table>{more}</div>"


def _footnote(prices: Prices) -> str:
    return (
        '<p class="soft">Rates, chunks and batches are counted from the indexes of all fragments in'
        " the window; offsets include those of tracking chunks. Messages, codecs, producers and"
        " consumers are from a sample, which has the newest fragment. Quantiles are within 9 %."
        f" Costs stand on {prices.storage:g} for a GB and month and {prices.put:g} for a thousand"
        " PUT requests: arguments of the job.</p>"
    )


def _thinned(values: Sequence[float]) -> list[float]:
    """At most 118 values, each the greatest of its neighbours."""
    step = -(-len(values) // 118) or 1
    return [max(values[n : n + step]) for n in range(0, len(values), step)]


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def size(value: float | None) -> str:
    """Bytes in words."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


def number(value: float | None) -> str:
    """A count in words."""
    if value is None:
        return "–"
    if value < 999.5:
        return f"{value:.3g}"
    for unit in ("k", "M", "G"):
        value /= 1000
        if value < 999.5:
            return f"{value:.3g} {unit}"
    return f"{value / 1000:.3g} T"


def times(value: float | None) -> str:
    """A factor in words."""
    return "–" if value is None else f"{value:.2g}×"


def span(seconds: float | None) -> str:
    """A time in words."""
    if seconds is None:
        return "–"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def money(value: float | None) -> str:
    """An amount in words; the currency is that of the prices."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.01 else f"{value:.2g}"
