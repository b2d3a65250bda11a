"""What the charts of the job profile show: bars over time, and histograms, as values.

`web/page.js` draws them in the reader's browser with Chart.js.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from coldstream.jobs.materialise.times import MAX_MS, MIN_MS

#: More bars than this are narrower than a pixel or two; neighbours are then drawn as their maximum.
MAX_BARS = 240
_TIME_TICKS, _BIN_TICKS = 5, 9


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars.

    Attributes:
        label: what it shows.
        unit: of the values: bytes, bytes/s, offsets/s or %.
        labels: below each bar.
        values: of each bar; None where there is nothing, which is what a gap looks like.
        ticks: how many labels are shown at once.
    """

    label: str
    unit: str
    labels: tuple[str, ...]
    values: tuple[float | None, ...]
    ticks: int


def time_chart(
    points: Sequence[tuple[int, float]],
    *,
    step_ms: int,
    begin_ms: int,
    end_ms: int,
    label: str,
    unit: str,
) -> Chart:
    """Bars over time.

    Args:
        points: (beginning of the span in ms, value).
        step_ms: length of a span.
        begin_ms: left end of the chart.
        end_ms: right end of the chart.
        label: what it shows.
        unit: of the values.
    """
    count = max(1, -(-(end_ms - begin_ms) // step_ms))
    together = -(-count // MAX_BARS)
    slots: list[tuple[float | None, int]] = [
        (None, begin_ms + slot * together * step_ms) for slot in range(-(-count // together))
    ]
    for at, value in points:
        slot = (at - begin_ms) // step_ms // together
        if 0 <= slot < len(slots) and value >= (slots[slot][0] or 0.0):
            slots[slot] = (value, at)
    return Chart(
        label,
        unit,
        tuple(_when(at) for _, at in slots),
        tuple(value for value, _ in slots),
        _TIME_TICKS,
    )


def histogram(
    bars: Sequence[tuple[int, int]], *, label: str, text: Callable[[float], str]
) -> Chart:
    """A histogram of doublings.

    Args:
        bars: (upper end, count), without gaps.
        label: what it shows.
        text: a size in words.
    """
    total = sum(count for _, count in bars) or 1
    return Chart(
        label,
        "%",
        tuple(f"{text(below / 2)} to {text(below)}" for below, _ in bars),
        tuple(100 * count / total for _, count in bars),
        _BIN_TICKS,
    )


def sparkline(values: Sequence[float]) -> str:
    """A line without axes for a row of a table, as SVG."""
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


def _when(milliseconds: int) -> str:
    at = datetime.fromtimestamp(min(max(milliseconds, MIN_MS), MAX_MS) / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M}"
