"""How far the stream has come, as the agent's own metrics say; a line for people."""

from __future__ import annotations

import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from coldstream.plans.stream_words import MARKS

_WIDTH = 10
_SCRAPE_SECONDS = 5.0
HEAD = "  ".join(["    time", *(f"{name:>{_WIDTH}}" for name in ("confirmed", *MARKS))])


def marks_of(page: str, stream: str) -> dict[str, int]:
    """The watermarks of a stream in a page of metrics; empty if it has none of it."""
    wanted = {f"coldstream_stream_{mark}_offset": mark for mark in MARKS}
    return {
        wanted[sample.name]: int(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in wanted and sample.labels["stream"] == stream
    }


def line(
    seconds: float,
    confirmed: int,
    marks: Mapping[str, int],
    *,
    old: bool = False,
    down: Collection[str] = (),
) -> str:
    """One line below `HEAD`.

    Args:
        seconds: since the beginning.
        confirmed: messages that the broker has confirmed.
        marks: offsets by their names; one that is not known is shown as "-".
        old: the agent does not answer, and these are the last that it gave: in parentheses.
        down: who is down just now.
    """
    texts = [f"{marks[mark]:,}" if mark in marks else "-" for mark in MARKS]
    shown = [f"({text})" if old and text != "-" else text for text in texts]
    cells = [f"{seconds:6.1f} s", *(f"{text:>{_WIDTH}}" for text in (f"{confirmed:,}", *shown))]
    note = f"  {' and '.join(down)} down" if down else ""
    return "  ".join(cells) + note


@dataclass(slots=True)
class Scrape:
    """What the agent said last.

    Args:
        port: of its metrics, on 127.0.0.1.
        stream: directory name.

    Attributes:
        marks: offsets by their names.
        old: it did not answer the last time, or knew nothing yet, and these are from before.
    """

    port: int
    stream: str
    marks: dict[str, int] = field(default_factory=dict)
    old: bool = True

    def look(self) -> None:
        """Ask again."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=_SCRAPE_SECONDS) as page:
                found = marks_of(page.read().decode(), self.stream)
        except (OSError, HTTPException):
            found = {}
        # One that has just started says 0 of all until it has looked.
        self.old = not any(found.values())
        self.marks = self.marks if self.old else found

    def equal(self) -> bool:
        """Whether the agent has just said that all are the same."""
        return not self.old and len(self.marks) == len(MARKS) and len(set(self.marks.values())) == 1
