"""How far a long command is: one line on stderr, drawn over itself on a terminal.

Elsewhere it is a line every ten seconds, so that a log has few of them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from coldstream.quantities import duration_text

_DRAWN_SECONDS, _WRITTEN_SECONDS = 0.2, 10.0
_MANY_COLUMNS = 1000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class ProgressLine:
    """Tells of offsets done and of bytes or messages; a context that ends the line.

    Args:
        first: offset at which the work begins.
        end: offset at which it ends; None if it has no end.
        noun: what is counted beside offsets; "bytes" are written as people write them.
        resumes: whether what an earlier run has done counts, too: then the rate is that of what
            comes after the first telling.
        shown: whether to tell at all.
        clock: seconds.
    """

    def __init__(
        self,
        first: int,
        end: int | None,
        noun: str,
        *,
        resumes: bool = False,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._end, self._noun, self._shown = first, end, noun, shown
        self._clock = clock
        self._began = self._last = clock()
        self._counted_from: int | None = None if resumes else 0
        self._drawn = False
        self._told: tuple[int, int] | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._told is not None and kind is None:
            self._write(*self._told)
        if self._drawn:
            _put("\n")

    def tell(self, offset: int, count: int) -> None:
        """Say how far it is, if it is time to.

        Args:
            offset: up to which all is done.
            count: of what is counted, in all.
        """
        if not self._shown:
            return
        if self._counted_from is None:
            self._counted_from = count
        self._told = offset, count
        now = self._clock()
        if now - self._last >= (_DRAWN_SECONDS if sys.stderr.isatty() else _WRITTEN_SECONDS):
            self._last = now
            self._write(offset, count)

    def _write(self, offset: int, count: int) -> None:
        seconds = max(self._clock() - self._began, 0.001)
        rate = (count - (self._counted_from or 0)) / seconds
        words = [f"offset {offset}"]
        if self._end is not None and self._end > self._first:
            part = (offset - self._first) / (self._end - self._first)
            words[0] += f" of {max(offset, self._end)} ({min(part, 1):.0%})"
            if 0 < part < 1:
                words.append(f"{duration_text(int(seconds * (1 - part) / part))} left")
        words.insert(1, f"{self._amount(count)}, {self._amount(int(rate))}/s")
        text = ", ".join(words)
        if sys.stderr.isatty():
            # What reaches into a second row would be left there when the first is drawn over.
            _put(f"\r\x1b[K{text[: _columns() - 1]}")
            self._drawn = True
        else:
            _put(f"{text}\n")

    def _amount(self, count: int) -> str:
        if self._noun != "bytes":
            return f"{count:,} {self._noun}"
        value = float(count)
        for unit in _UNITS:
            if value < 1024 or unit == _UNITS[-1]:
                break
            value /= 1024
        return f"{value:,.1f} {unit}"


def _columns() -> int:
    """Of the terminal; very many where it does not say."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or _MANY_COLUMNS
    return _MANY_COLUMNS


def _put(text: str) -> None:
    """Say it, if anybody listens: what is told is told for a person, and not what was asked for."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
