"""What a shell is offered at Tab, and tables on terminals of any width."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
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
        ("/", ["//invoices", "//orders"]),
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


ODD = [
    "$(touch pwned)",
    "`touch pwned`",
    "a;touch pwned",
    "a b",
    "-rf",
    "*",
    "~",
    "a'b",
    "!x",
    "ü",
    "=ls",
]


def test_a_name_that_a_shell_would_not_leave_alone_is_offered_as_its_directory(
    items: list[Any],
) -> None:
    """Whoever may declare a queue could run commands in an operator's shell."""
    for n, queue in enumerate(ODD):
        item = replace(items[0], stream=f"__odd_{n}", name=QueueName("c", "/", queue))
        expected = f"//{queue}" if queue in ("-rf", "=ls") else item.stream
        assert complete.offered([item], "//") == [expected]
        assert complete.offered([item], queue[:1]) == [f"__odd_{n}"]
    dashed = replace(items[0], stream="-v_q_1", name=QueueName("c", "-v", "q"))
    assert complete.offered([dashed], "-") == []


def test_a_name_of_several_streams_is_offered_as_their_directories(items: list[Any]) -> None:
    twice = [replace(items[0], stream=f"__twice_{n}") for n in (1, 2)]
    vhosts = [replace(items[0], stream=f"{n}_x_1", name=QueueName("c", n, "x")) for n in ("v", "w")]

    assert complete.offered(twice, "//") == ["__twice_1", "__twice_2"]
    assert complete.offered(vhosts, "x") == ["v_x_1", "w_x_1"]
    assert complete.offered(vhosts, "v/") == ["v/x"]


def test_bash_runs_nothing_of_what_it_is_offered(items: list[Any], tmp_path: Path) -> None:
    """As it takes what it is offered: into the line, which Enter then runs."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    item = replace(items[0], stream="__odd_1", name=QueueName("c", "/", "$(touch pwned)"))
    (tmp_path / "offered").write_text("\n".join(complete.offered([item], "//$")))
    (tmp_path / "rc").write_text(
        "_c() { local IFS=$'\\n'; COMPREPLY=( $(cat offered) ); }\n"
        'c() { echo "$@" > got; }\ncomplete -o default -F _c c\n'
    )
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execv(bash, ["bash", "--noprofile", "--rcfile", "rc", "-i"])
    try:
        os.write(fd, b"c read //$\t\nexit\n")
        with contextlib.suppress(OSError):  # its end
            while os.read(fd, 65536):
                pass
    finally:
        os.close(fd)
        os.waitpid(pid, 0)

    assert (tmp_path / "got").read_text() == "read __odd_1\n"
    assert not (tmp_path / "pwned").exists()


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
