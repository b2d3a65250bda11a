"""What a shell is offered at Tab, and tables on terminals of any width."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.cli import complete
from coldstream.cli.output import print_table
from coldstream.manifest.catalog import QueueName, StreamState
from tests.support.tier import Tier, chunk

ROOT = Path(__file__).parents[2]


@pytest.fixture
def items(tier: Tier) -> list[Any]:
    for stream, queue in (("__orders_1", "orders"), ("__invoices_2", "invoices"), ("__old_3", "")):
        tier.add(stream, [[chunk(0, b"x")]], name=QueueName("c", "/", queue))
    return list(tier.catalog.streams())


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", ["//invoices", "//orders", "__old_3"]),
        ("//o", ["//orders"]),
        ("in", ["invoices"]),
        ("__o", ["__old_3", "__orders_1"]),
        ("x", []),
    ],
)
def test_a_stream_is_completed_in_the_form_that_was_begun(
    items: list[Any], typed: str, expected: list[str]
) -> None:
    assert complete.offered(items, typed) == expected


def test_a_deleted_stream_is_not_offered_and_never_too_many(items: list[Any]) -> None:
    many = [replace(items[0], name=QueueName("c", "/", f"q{n}")) for n in range(500)]
    gone = [replace(each, state=StreamState.DELETED) for each in items]

    assert complete.offered(gone, "") == []
    assert len(complete.offered(many, "")) == 100


def completed(words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """What bash gets for `coldstream WORDS<Tab>`."""
    return subprocess.run(
        [Path(sys.executable).with_name("coldstream")],
        env={
            "PATH": os.environ["PATH"],
            "_COLDSTREAM_COMPLETE": "complete_bash",
            "COMP_WORDS": f"coldstream {words}",
            "COMP_CWORD": str(len(words.split())),
            **settings,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_shell_is_told_nothing_where_the_catalog_cannot_be_asked() -> None:
    nowhere = {
        "COLDSTREAM_TABLE": "t",
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    for settings in ({}, nowhere):
        done = completed("read ord", **settings)
        assert (done.stdout.strip(), done.stderr) == ("", "")
    assert "restore" in completed("rest").stdout


class Terminal:
    """A stdout that is one, as wide as COLUMNS says."""

    def __init__(self) -> None:
        self.text = ""
        self.encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("columns", [200, 40])
def test_a_table_fits_its_terminal_and_nothing_of_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [
        {"stream": "__orders_with_a_long_name_1745252105682952932", "next": 1234567, "none": None},
        {"stream": "b", "next": 1, "none": "x"},
    ]

    print_table(rows, ("stream", "next", "none"))

    lines = terminal.text.splitlines()
    for value in ("__orders_with_a_long_name_1745252105682952932", "1234567"):
        assert sum(value in line for line in lines) == 1
    if columns == 40:
        assert lines[0] == "1 of 2"
        assert lines[2] == "  next    1234567"
        assert max(map(len, lines)) < 60
    else:
        assert "stream" in lines[0]
