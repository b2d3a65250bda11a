"""A look at the dashboard without Grafana: its queries on a real Prometheus, drawn as one page.

python -m coldstream_devkit.dashboard_page http://127.0.0.1:9090 [MINUTES] > page.html

What is drawn is what dashboards/coldstream-agent.json says (places, units, thresholds, legends), so
that a query that gives nothing, a wrong unit or a legend that nobody can read shows. It is not how
Grafana draws.
"""

from __future__ import annotations

import html
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from coldstream_devkit.dashboard import dashboard

_UNIT_PX, _WIDE_PX = 34, 66
_STEP_SECONDS = 5
_SCRAPE_SECONDS = 15
_COLOURS = (
    *("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c"),
    *("#b877d9", "#8ab8ff", "#ffa6b0", "#37872d", "#e0b400"),
)
_NAMED = {"green": "#1a7f4b", "orange": "#c8670a", "red": "#c4162a", "blue": "#1f4e9c"}
_STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:12px DejaVu Sans,sans-serif}
.p{position:absolute;background:#181b1f;border:1px solid #2b2d33;box-sizing:border-box;
overflow:hidden;padding:4px 6px}
.p h3{font-size:12px;font-weight:500;margin:0 0 2px}
.s{text-align:center;color:#fff}.s h3{text-align:left}.s b{font-size:30px;font-weight:500}
table{border-collapse:collapse;width:100%;font-size:11px}td,th{text-align:left;padding:1px 5px;
white-space:nowrap}.r td+td{text-align:right}.row{background:none;border:0;font-weight:600}
"""

Series = tuple[Mapping[str, str], list[tuple[float, float]]]


class Answers:
    """A Prometheus, asked as a dashboard asks, with every variable at All.

    Args:
        url: of the server.
        seconds: that are shown, up to now.

    Raises:
        OSError: it does not answer, or refuses a query.
    """

    def __init__(self, url: str, seconds: int) -> None:
        self._url, self._seconds, self._now = url, seconds, time.time()

    def ask(self, target: Mapping[str, Any]) -> list[Series]:
        """What a target of a panel gives."""
        query = filled(target["expr"], self._seconds)
        if target["instant"]:
            rows = self._get("query", {"query": query, "time": str(self._now)})
            return [(row["metric"], [_point(row["value"])]) for row in rows]
        span = {"start": str(self._now - self._seconds), "end": str(self._now)}
        rows = self._get("query_range", {"query": query, "step": str(_STEP_SECONDS), **span})
        return [(row["metric"], [_point(each) for each in row["values"]]) for row in rows]

    def _get(self, page: str, words: Mapping[str, str]) -> list[dict[str, Any]]:
        body = urllib.parse.urlencode(words).encode()
        with urllib.request.urlopen(f"{self._url}/api/v1/{page}", body, timeout=60) as got:  # noqa: S310 - a URL that a developer gives
            found: list[dict[str, Any]] = json.load(got)["data"]["result"]
        return found

    @property
    def window(self) -> tuple[float, float]:
        """From when to when, seconds since the epoch."""
        return self._now - self._seconds, self._now


def filled(expr: str, seconds: int) -> str:
    """A query with the values that Grafana would put in."""
    rate = max(4 * _SCRAPE_SECONDS, _STEP_SECONDS + _SCRAPE_SECONDS)
    for name, value in {"__rate_interval": f"{rate}s", "__range": f"{seconds}s"}.items():
        expr = expr.replace(f"${name}", value)
    return re.sub(r'"\$(job|instance|vhost|queue)"', '".*"', expr)


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def text_of(value: float, unit: str) -> str:
    """A number as a person reads it."""
    if unit == "percentunit":
        return f"{100 * value:.1f} %"
    if unit in ("bytes", "binBps"):
        tail = "/s" if unit == "binBps" else ""
        for name in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or name == "GiB":
                return f"{value:.3g} {name}{tail}"
            value /= 1024
    if unit == "s":
        for size, name in ((86400, "days"), (3600, "hours"), (60, "min")):
            if abs(value) >= size:
                return f"{value / size:.1f} {name}"
        return f"{value:.3g} s"
    shown = f"{value:.4g}" if abs(value) < 1000 else f"{value / 1000:.3g} K"
    return shown + (" /s" if unit == "cps" else "")


def colour_of(value: float, thresholds: Mapping[str, Any]) -> str:
    """The colour that thresholds give to a number."""
    steps = thresholds["steps"]
    found = [s["color"] for s in steps if s["value"] is None or value >= s["value"]]
    return _NAMED.get(found[-1], "transparent")


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    words = target["legendFormat"]
    if words == "__auto":
        return ", ".join(f"{k}={v}" for k, v in labels.items())
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), words)


def _stat(panel: Mapping[str, Any], answers: Answers) -> tuple[str, str]:
    defaults = panel["fieldConfig"]["defaults"]
    rows = answers.ask(panel["targets"][0])
    if not rows:
        return defaults["noValue"], colour_of(float("inf"), defaults["thresholds"])
    value = rows[0][1][-1][1]
    return text_of(value, defaults["unit"]), colour_of(value, defaults["thresholds"])


def _table(panel: Mapping[str, Any], answers: Answers) -> str:
    organize = panel["transformations"][0]["options"]
    special = panel["fieldConfig"]["overrides"][0]["properties"]
    unit, thresholds = special[0]["value"], special[1]["value"]
    order = sorted(organize["indexByName"], key=lambda name: organize["indexByName"][name])
    heads = "".join(f"<th>{organize['renameByName'].get(n, n)}</th>" for n in order)
    lines = []
    falling = not panel["options"]["sortBy"][0]["desc"]
    found = sorted(answers.ask(panel["targets"][0]), key=lambda r: r[1][-1][1], reverse=not falling)
    for labels, points in found:
        value = points[-1][1]
        cells = []
        for name in order:
            if name == "Value":
                shade = colour_of(value, thresholds)
                cells.append(f'<td style="background:{shade}">{text_of(value, unit)}</td>')
            else:
                cells.append(f"<td>{html.escape(labels.get(name, ''))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>" if lines else "none"


def _graph(panel: Mapping[str, Any], answers: Answers, wide: int, high: int) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    lines: list[tuple[str, list[tuple[float, float]]]] = [
        (_legend(target, labels), points)
        for target in panel["targets"]
        for labels, points in answers.ask(target)
    ]
    drawn, base = [], dict.fromkeys((t for _, points in lines for t, _ in points), 0.0)
    for name, points in lines:
        if stacked:
            for at, value in points:
                base[at] += value
            points = [(at, base[at]) for at, _ in points]
        drawn.append((name, points))
    top = max((v for _, points in drawn for _, v in points), default=0.0) * 1.08 or 1.0
    begin, end = answers.window
    plot = wide * 0.6
    svg, rows = [], []
    for part in range(5):
        y = high * (1 - part / 4)
        label = text_of(top * part / 4, defaults["unit"])
        svg.append(f'<path d="M60 {y:.0f}H{plot:.0f}" stroke="#2b2d33"/>')
        svg.append(f'<text x="56" y="{min(high, y + 10):.0f}" text-anchor="end">{label}</text>')
    for step in defaults["thresholds"]["steps"][:]:
        level = step["value"]
        if (
            level is not None
            and level <= top
            and defaults["custom"]["thresholdsStyle"]["mode"] != "off"
        ):
            y = high * (1 - level / top)
            svg.append(f'<path d="M60 {y:.0f}H{plot:.0f}" stroke="red" stroke-dasharray="4"/>')
    for number, (name, points) in enumerate(drawn):
        colour = _COLOURS[number % len(_COLOURS)]
        words, last = [], None
        for at, value in points:
            x = 60 + (at - begin) / (end - begin) * (plot - 60)
            joined = last is not None and at - last <= _STEP_SECONDS * 1.5
            words.append(f"{'L' if joined else 'M'}{x:.1f} {high * (1 - value / top):.1f}")
            last = at
        svg.append(f'<path d="{"".join(words)}" fill="none" stroke="{colour}"/>')
        values = [value for _, value in lines[number][1]]
        ends = (text_of(values[-1], defaults["unit"]), text_of(max(values), defaults["unit"]))
        cells = "".join(f"<td>{each}</td>" for each in ends)
        mark = f'<span style="color:{colour}">━</span> {html.escape(name)}'
        rows.append(f"<tr><td>{mark}</td>{cells}</tr>")
    picture = f'<svg width="{plot:.0f}" height="{high}" fill="#8e8e9a">{"".join(svg)}</svg>'
    side = f"position:absolute;right:4px;top:22px;width:{wide * 0.37:.0f}px"
    heads = "<tr><th></th><th>Last *</th><th>Max</th></tr>"
    legend = f'<table class="r" style="{side}">{heads}{"".join(rows)}</table>'
    return picture + legend if drawn else "No data"


def page(answers: Answers) -> str:
    """The whole dashboard as HTML."""
    found, bottom = [], 0
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        x, y = at["x"] * _WIDE_PX, at["y"] * _UNIT_PX
        wide, high = at["w"] * _WIDE_PX - 6, at["h"] * _UNIT_PX - 6
        bottom = max(bottom, y + high)
        kind, style, body = "", "", ""
        if panel["type"] == "row":
            kind = "row"
        elif panel["type"] == "stat":
            number, shade = _stat(panel, answers)
            kind, style, body = "s", f"background:{shade}", f"<b>{number}</b>"
        elif panel["type"] == "table":
            body = _table(panel, answers)
        else:
            body = _graph(panel, answers, wide - 14, high - 36)
        place = f"left:{x}px;top:{y}px;width:{wide}px;height:{high}px;{style}"
        title = html.escape(panel["title"])
        found.append(f'<div class="p {kind}" style="{place}"><h3>{title}</h3>{body}</div>')
    size = f'<div style="height:{bottom}px"></div>'
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{size}{''.join(found)}"


def main() -> None:
    """Print the page."""
    minutes = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    sys.stdout.write(page(Answers(sys.argv[1], 60 * minutes)))


if __name__ == "__main__":
    main()
