"""Small charts as inline SVG: bars over time, and histograms. No script, no font, no dependency.

Colours come from the page's style sheet by class, so that they follow the reader's light or dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

from coldstream.jobs.materialise.times import MAX_MS, MIN_MS

_WIDTH, _HEIGHT = 560, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 10, 22
#: More bars than this are narrower than a pixel; neighbours are then drawn as their maximum.
_MAX_BARS = 240

Text = Callable[[float], str]


def time_bars(
    points: Sequence[tuple[int, float]],
    *,
    step_ms: int,
    begin_ms: int,
    end_ms: int,
    label: str,
    text: Text,
) -> str:
    """Bars over time; where there is no point there is no bar, which is what a gap looks like.

    Args:
        points: (begin of the span in ms, value).
        step_ms: length of a span.
        begin_ms: left end of the chart.
        end_ms: right end of the chart.
        label: what it shows, for those who cannot see it.
        text: a value in words.
    """
    count = max(1, -(-(end_ms - begin_ms) // step_ms))
    together = -(-count // _MAX_BARS)
    slots: dict[int, tuple[float, int]] = {}
    for at, value in points:
        slot = (at - begin_ms) // step_ms // together
        if slot >= 0 and value >= slots.get(slot, (0.0, 0))[0]:
            slots[slot] = (value, at)
    most = max((value for value, _ in slots.values()), default=0.0)
    top = nice(most)
    wide = (_WIDTH - _LEFT - _RIGHT) * together / count
    marks = [
        _bar(_LEFT + slot * wide, wide, value / top, f"{_when(at)}: {text(value)}")
        for slot, (value, at) in sorted(slots.items())
        if value > 0
    ]
    times = [begin_ms + (end_ms - begin_ms) * part // 4 for part in range(5)]
    axis = [
        f'<text x="{_LEFT + (_WIDTH - _LEFT - _RIGHT) * part / 4:.0f}" y="{_HEIGHT - 5}"'
        f' text-anchor="{("start", "middle", "middle", "middle", "end")[part]}">'
        f"{_when(at, short=True)}</text>"
        for part, at in enumerate(times)
    ]
    return _chart(label, top, text, marks, axis)


def histogram(bars: Sequence[tuple[int, int]], *, label: str, text: Text) -> str:
    """A histogram of doublings.

    Args:
        bars: (upper end, count), without gaps.
        label: what it shows.
        text: a size in words.
    """
    total = sum(count for _, count in bars) or 1
    top = nice(100 * max((count for _, count in bars), default=0) / total)
    wide = (_WIDTH - _LEFT - _RIGHT) / max(6, len(bars))
    marks, axis = [], []
    every = max(1, -(-len(bars) // 8))
    for number, (below, count) in enumerate(bars):
        x = _LEFT + number * wide
        share = 100 * count / total
        note = f"{text(below / 2)} to {text(below)}: {count:,} ({share:.1f} %)"
        marks.append(_bar(x + 1, wide - 2, share / top, note))
        if number % every == 0:
            axis.append(
                f'<text x="{x:.0f}" y="{_HEIGHT - 5}" text-anchor="middle">{text(below / 2)}</text>'
            )
    return _chart(label, top, lambda value: f"{value:g} %", marks, axis)


def sparkline(values: Sequence[float]) -> str:
    """A line without axes, for a row of a table."""
    if len(values) < 2 or max(values) <= 0:
        return ""
    top = max(values)
    points = " ".join(
        f"{number * 118 / (len(values) - 1) + 1:.1f},{23 - 21 * value / top:.1f}"
        for number, value in enumerate(values)
    )
    return (
        '<svg class="spark" viewBox="0 0 120 24" aria-hidden="true">'
        f'<polyline points="{points}"/></svg>'
    )


def nice(value: float) -> float:
    """The end of an axis for values up to `value`: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _bar(x: float, width: float, part: float, note: str) -> str:
    inside = _HEIGHT - _TOP - _BOTTOM
    high = max(1.0, inside * min(1.0, part)) if part > 0 else 0.0
    gap = 1.0 if width > 4 else 0.0
    return (
        f'<rect x="{x:.1f}" y="{_TOP + inside - high:.1f}" width="{max(0.5, width - gap):.1f}"'
        f' height="{high:.1f}"><title>{escape(note)}</title></rect>'
    )


def _chart(label: str, top: float, text: Text, marks: list[str], axis: list[str]) -> str:
    inside = _HEIGHT - _TOP - _BOTTOM
    grid = []
    for part in (0.0, 0.5, 1.0):
        y = _TOP + inside * (1 - part)
        grid.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{escape(text(top * part))}'
            "</text>"
        )
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label="{escape(label)}">{"".join(grid)}{"".join(marks)}{"".join(axis)}</svg>'
    )


def _when(milliseconds: int, *, short: bool = False) -> str:
    at = datetime.fromtimestamp(min(max(milliseconds, MIN_MS), MAX_MS) / 1000, UTC)
    return f"{at:%d %b %H:%M}" if short else f"{at:%Y-%m-%d %H:%M} UTC"
