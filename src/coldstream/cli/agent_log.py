"""What the agent says on stderr: sentences for people, or one JSON object a line.

    {"time": "2026-11-23T17:00:00.123Z", "level": "error", "event": "error", "message": "...",
     "stream": "__orders_1", "offset": 682, "key": null, "kind": "unavailable", "remedy": null}

`level` is info, warning or error. `event` is a stable word; an event may have numbers beside it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from coldstream.cli.agent_options import LogFormat
from coldstream.errors import ColdstreamError

if TYPE_CHECKING:
    from coldstream.agent.telling.progress import Progress

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Totals:
    """How far all streams are together. Sizes in bytes."""

    streams: int
    fragments: int
    bytes: int
    behind: int
    standing: int
    failing: int

    @classmethod
    def of(cls, rows: Sequence[Progress]) -> Totals:
        """The sums of what is said of each stream."""
        streams = fragments = size = behind = standing = failing = 0
        for each in rows:  # of ten thousand streams, every second: one loop, not six
            streams += each.gone is None
            fragments += each.fragments
            size += each.bytes
            behind += each.next_offset < each.cut_offset
            standing += each.standstill is not None
            failing += each.error is not None
        return cls(streams, fragments, size, behind, standing, failing)

    def __str__(self) -> str:
        return (
            f"{self.streams} streams, {self.fragments} fragments,"
            f" {self.bytes / _MIB:,.1f} MiB uploaded, {self.behind} manifests behind"
            + (f", {self.standing} without progress" if self.standing else "")
        )


@dataclass(slots=True)
class AgentLog:
    """Writes to stderr. Every method raises OSError where that cannot be written.

    Args:
        format: of what is written.
        now: seconds since the Unix epoch.
    """

    format: LogFormat = LogFormat.TEXT
    now: Callable[[], float] = time.time

    @property
    def drawn(self) -> bool:
        """Whether the line of totals is drawn over itself, on a terminal."""
        return self.format is LogFormat.TEXT and sys.stderr.isatty()

    def info(self, event: str, message: str) -> None:
        """What is good to know."""
        if self.format is LogFormat.JSON:
            self._object("info", event, message)
        else:
            self._line(message)

    def warning(
        self, event: str, message: str, *, stream: str | None = None, offset: int | None = None
    ) -> None:
        """What a person should know although all goes on."""
        if self.format is LogFormat.JSON:
            self._object("warning", event, message, stream=stream, offset=offset)
        else:
            self._line(f"WARNING: {message}")

    def error(self, error: ColdstreamError, event: str = "error") -> None:
        """What stands still, or is not done."""
        remedy = error.remedy
        if self.format is LogFormat.TEXT:
            self._line(f"{error}\n  try: {remedy}" if remedy else str(error))
            return
        self._object(
            "error",
            event,
            error.reason,
            stream=error.stream,
            offset=error.offset,
            key=error.key,
            kind=str(error.kind),
            remedy=remedy,
        )

    def totals(self, totals: Totals, *, last: bool = False) -> None:
        """How far all streams are.

        Args:
            totals: of now.
            last: whether nothing follows.
        """
        if self.format is LogFormat.JSON:
            numbers = {name: getattr(totals, name) for name in Totals.__slots__}
            self._object("info", "progress", str(totals), **numbers)
        elif self.drawn:
            self._write(f"\r\x1b[K{totals}" + ("\n" if last else ""))
        else:
            self._write(f"{totals}\n")

    def _line(self, text: str) -> None:
        # On a terminal the line of totals may stand where this one begins.
        self._write(f"{chr(10) if self.drawn else ''}coldstream: {text}\n")

    def _object(self, level: str, event: str, message: str, **more: object) -> None:
        moment = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": moment.replace("+00:00", "Z"),
            "level": level,
            "event": event,
            "message": message,
        }
        self._write(json.dumps(fields | more) + "\n")

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)  # noqa: T201
