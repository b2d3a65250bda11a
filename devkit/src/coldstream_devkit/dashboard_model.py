"""What a dashboard is made of, as values: rows of panels, each with its queries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a number counts, in Grafana's words."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "binBps"
    PER_SECOND = "cps"
    SHARE = "percentunit"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and what its lines are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a number turns yellow and red.

    Attributes:
        yellow: from here on; None for never.
        red: from here on; None for never.
        falling: it is the small numbers that are bad.
    """

    yellow: float | None = None
    red: float | None = None
    falling: bool = False


@dataclass(frozen=True, slots=True)
class Stat:
    """One number of now, on a colour.

    Attributes:
        none: what to write where there is no number.
    """

    title: str
    about: str
    query: Query
    unit: Unit = Unit.COUNT
    steps: Steps | None = None
    none: str = "-"


@dataclass(frozen=True, slots=True)
class Graph:
    """Lines over time.

    Attributes:
        steps: levels to draw.
        stacked: whether the lines add up.
    """

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    steps: Steps | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Worst:
    """A table of streams, the worst first.

    Attributes:
        value: what its number is called.
        falling: it is the small numbers that are bad.
    """

    title: str
    about: str
    query: Query
    value: str
    unit: Unit
    steps: Steps
    falling: bool = False


Panel = Stat | Graph | Worst


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, side by side."""

    title: str
    panels: tuple[Panel, ...]
