"""Tables and JSON on stdout, notes on stderr.

A table is drawn for people on a terminal, or, where it is wider than that, its rows one below the
other with a line for each value; into a pipe it goes as tab-separated lines with a header,
for `cut` and `awk`. NO_COLOR is respected (by rich).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

Row = Mapping[str, Any]
#: The most that a number of things to show can be; no stream has more messages.
MAX_ROWS_ASKED = 2**62


def print_json(value: object) -> None:
    """One JSON document on stdout, in UTF-8 whatever the locale."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    sys.stdout.buffer.write(text.encode() + b"\n")


def print_table(rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Rows as a table: drawn on a terminal, tab-separated elsewhere.

    Args:
        rows: values by column; a missing one is empty.
        columns: which, and in which order.
    """
    if not sys.stdout.isatty():
        lines = [columns, *([plain(row.get(name)) for name in columns] for row in rows)]
        sys.stdout.writelines("\t".join(line) + "\n" for line in lines)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    rows = list(rows)
    for name in columns:
        numbers = all(isinstance(row.get(name), int | None) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(plain(row.get(name)) for name in columns), style=row.get("_style"))
    console = Console()
    natural = console.measure(table, options=console.options.update(width=10_000)).maximum
    if rows and natural > console.width:
        _print_records(rows, columns)
    else:
        console.print(table)


def _print_records(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Rows one below the other, for a terminal that is too narrow: nothing is cut or folded."""
    width = max(map(len, columns))
    for number, row in enumerate(rows, 1):
        _print_heading(f"{number} of {len(rows)}")
        for name in columns:
            if row.get(name) is not None:
                sys.stdout.write(f"  {name:<{width}}  {plain(row[name])}\n")


def print_section(title: str, values: Mapping[str, Any]) -> None:
    """A titled list of names and values, and an empty line."""
    width = max(map(len, values), default=0)
    _print_heading(title)
    for name, value in values.items():
        sys.stdout.write(f"  {name:<{width}}  {plain(value)}\n")
    sys.stdout.write("\n")


def print_titled(title: str, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """A table below its title, and an empty line."""
    _print_heading(title)
    print_table(rows, columns)
    sys.stdout.write("\n")


def note(text: str) -> None:
    """A remark on stderr; whoever reads it may have gone, and the command goes on."""
    with suppress(BrokenPipeError):
        sys.stderr.write(text + "\n")


def plain(value: object) -> str:
    """A value as a cell: nothing that would break a line or a column, or drive a terminal."""
    if value is None:
        return "-"
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def when(timestamp: int | None) -> str | None:
    """Milliseconds since the Unix epoch as ISO 8601 in UTC; the number itself if out of range."""
    if timestamp is None:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp % 1000:03d}Z"


def size(count: int) -> str:
    """Bytes as people write them, with the exact number."""
    value, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    for unit in units:
        if value < 1024 or unit == units[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit} ({count} B)"


def many(count: int, noun: str) -> str:
    """A number and its noun, e.g. "1 stream" or "2 streams"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def yes_no(value: bool | None) -> str | None:
    """A truth as a word, for tables; None stays."""
    return None if value is None else "yes" if value else "no"


def _print_heading(text: str) -> None:
    bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.write(f"\033[1m{text}\033[0m\n" if bold else f"{text}\n")
