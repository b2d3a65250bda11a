"""Values in words for the page of the job profile: three digits, a unit, and never an exponent."""

from __future__ import annotations

import math

NOTHING = "–"
#: Places behind the point beyond which nothing is told.
_MAX_PLACES = 9


def plain(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, written out."""
    if not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, places):,.{min(max(0, places), _MAX_PLACES)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(value: float | None, per: str = "") -> str:
    """Bytes, or bytes per something."""
    return _scaled(value, ("B", "kB", "MB", "GB", "TB", "PB"), per)


def number(value: float | None, per: str = "") -> str:
    """A count, or a count per something."""
    return _scaled(value, ("", "k", "M", "G", "T"), per)


def _scaled(value: float | None, units: tuple[str, ...], per: str) -> str:
    if value is None:
        return NOTHING
    step = 0
    while value >= 999.5 and step < len(units) - 1:
        value, step = value / 1000, step + 1
    return f"{plain(value)} {units[step]}".rstrip() + per


def times(value: float | None) -> str:
    """A factor."""
    return NOTHING if value is None else f"{plain(value, 2)}×"


def percent(part: float) -> str:
    """A part of one."""
    return f"{plain(100 * part, 2)} %"


def span(seconds: float | None) -> str:
    """A time."""
    if seconds is None:
        return NOTHING
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{plain(seconds / length)} {unit}"
    return f"{plain(seconds)} s"


def money(value: float | None) -> str:
    """An amount; the currency is that of the prices."""
    if value is None:
        return NOTHING
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def price(value: float) -> str:
    """A price, exactly."""
    return f"{value:.12f}".rstrip("0").rstrip(".")
