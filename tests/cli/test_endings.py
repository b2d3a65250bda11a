"""How commands end when the world around them does: full disks, closed streams, Ctrl-C, lost data.

Each runs in a process of its own, because that is what a shell sees.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldstream.cli import verify
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.main import app
from coldstream.cli.output import note
from coldstream.cli.progress import ProgressLine
from tests.cli.conftest import Run
from tests.support.interrupts import heeds_ctrl_c
from tests.support.tier import Tier, chunk

ROOT = Path(__file__).parents[2]
#: `coldstream ARGUMENTS` over a stream `s` in memory; with WAIT it is then as long as it likes.
PROGRAM = """
import sys
sys.argv = ["coldstream", *sys.argv[1:]]
from tests.support.tier import Tier, chunk, PREFIX
from coldstream.adapters.memory import MemoryPolicies
from coldstream.cli import options
from coldstream.adapters.place import Place, Remote
from coldstream.cli.main import main
tier = Tier(); tier.add("s", [[chunk(n, bytes(COUNT))] for n in range(9)])
remote = Remote(tier.store, tier.catalog, MemoryPolicies(), Place("b", "t", PREFIX))
def connect(**_):
    if WAIT:
        import time; print("waiting", file=sys.stderr, flush=True); time.sleep(60)
    return remote
options.connect = connect
main()
"""


def shell(line: str, *, count: int = 10) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which `$RUN` is the command."""
    program = f"COUNT = {count}; WAIT = False\n{PROGRAM}"
    return subprocess.run(
        ["sh", "-c", line.replace("$RUN", '"$PYTHON" -c "$PROGRAM"')],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "PYTHON": sys.executable,
            "PROGRAM": program,
            # Below a limit of file size, what is compiled would be written in part, for all others.
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )


@pytest.mark.parametrize(
    ("command", "target", "count"),
    [
        ("read s", "> /dev/full", 10),  # told by the flush at the end
        ("read s -o raw", "> /dev/full", 100_000),  # told in the middle
        ("read s -o json", ">&-", 10),
        ("read s -o raw", ">&-", 100_000),
        ("streams --json", ">&-", 10),
        ("--help", "> /dev/full", 10),
        ("--version", ">&-", 10),
    ],
)
def test_an_output_that_cannot_be_written_is_74_and_never_success(
    command: str, target: str, count: int
) -> None:
    done = shell(f"$RUN {command} {target}", count=count)

    assert done.returncode == 74, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "cannot write" in done.stderr
    assert "  failed" not in done.stderr


@pytest.mark.parametrize("command", ["--help", "read --help", "--version", "read s -o raw"])
def test_a_reader_who_has_gone_has_what_he_wanted(command: str) -> None:
    done = shell(f'{{ $RUN {command}; echo "ended with $?" >&2; }} | true', count=100_000)

    assert done.stderr == "ended with 0\n"


@pytest.mark.parametrize("command", ["export s", "restore s"])
def test_a_target_whose_disk_is_full_is_named_and_the_same_command_goes_on_later(
    command: str, tmp_path: Path
) -> None:
    """It said that standard output could not be written."""
    line = f"$RUN {command} --to {tmp_path} --quiet"
    # A limit of a file's size, in 512 bytes, says what a full disk says.
    full = shell(f"ulimit -f 1; {line}", count=1000)
    later = shell(line, count=1000)

    assert full.returncode == 74, full.stderr
    assert "Traceback" not in full.stderr
    assert str(tmp_path) in full.stderr
    assert "standard output" not in full.stderr
    assert later.returncode == 0, later.stderr
    assert not [path for path in tmp_path.rglob("*") if "part" in path.name]


class Deaf(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_who_no_longer_listens_to_remarks_and_progress_stops_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An export whose stderr went to `| head` ended in the middle, with success."""
    monkeypatch.setattr("sys.stderr", Deaf())
    clock = iter(range(0, 10_000, 100)).__next__
    with ProgressLine(0, 10, "messages", clock=clock) as line:
        line.tell(1, 1)
        note("gap: offsets 1 to 2")
        line.tell(3, 3)


def test_an_error_is_told_although_neither_stream_is_open() -> None:
    assert shell("$RUN read nobody >&- 2>&-").returncode == 66
    assert shell("$RUN read nobody 2>&-").stdout == ""


def test_what_was_written_before_is_all_there() -> None:
    done = shell("$RUN read s -o raw | wc -c")

    assert (done.stdout.strip(), done.stderr) == ("90", "")


def test_ctrl_c_ends_a_command_by_a_word_and_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"COUNT = 1; WAIT = True\n{PROGRAM}", "read", "s"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        preexec_fn=heeds_ctrl_c,
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "waiting\n"
        said = ""
        for _ in range(6):  # once, at a load of seven, the first one came to nothing
            running.send_signal(signal.SIGINT)
            try:
                running.wait(5)
            except subprocess.TimeoutExpired:
                continue
            said = running.stderr.read()
            break

    assert (running.returncode, said.count("\n")) == (130, 1)
    assert said.startswith("coldstream read: interrupted")


def test_ctrl_c_while_python_imports_is_no_traceback() -> None:
    program = (
        "import sys; sys.argv = ['coldstream']\n"
        "class Late:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'coldstream.cli.verify': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Late())\n"
        "from coldstream.cli.main import main"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )

    assert done.returncode in (130, -signal.SIGINT)
    assert done.stderr == "coldstream: interrupted\n"


def test_ctrl_c_in_the_demo_says_what_stays_up_and_how_to_stop_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coldstream_devkit.demo import __main__ as demo

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "demo", interrupted)

    assert demo.main() == ExitCode.INTERRUPTED
    said = capsys.readouterr().err
    assert "local down" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [["read", "s", "--limit"], ["describe", "s", "--fragments"],
     ["quarantine", "read", "s", "--timeline", "1", "--limit"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("number", ["9" * 26, str(2**63)])
def test_a_number_that_no_machine_can_count_to_is_a_usage_error(
    run: Run, command: list[str], number: str
) -> None:
    assert run(*command, number).exit_code == 2


def test_a_fragment_that_is_gone_is_lost_data_and_not_a_misspelled_name(
    run: Run, tier: Tier
) -> None:
    root = tier.add("s", [[chunk(0, b"0")], [chunk(1, b"1")]])
    del tier.store.objects[tier.key(root, "s", 1)]

    done = run("read", "s")

    assert done.exit_code == 65
    assert tier.key(root, "s", 1) in done.stderr
    assert "why: missing object" in done.stderr
    assert "coldstream verify" in done.stderr


@pytest.mark.parametrize("command", ["read", "describe"])
def test_a_root_that_is_gone_is_lost_data(run: Run, tier: Tier, command: str) -> None:
    tier.add("s", [[chunk(0, b"0")]])
    del tier.store.objects[tier.catalog.items["s"].root_key]

    assert run(command, "s").exit_code == 65


def test_a_stream_that_nobody_knows_stays_66(run: Run, tier: Tier) -> None:
    assert run("read", "nobody").exit_code == 66


def test_a_look_without_deep_never_claims_that_bytes_were_read(run: Run, tier: Tier) -> None:
    import json

    tier.add("s", [[chunk(0, b"0")]])
    rules: dict[bool, dict[str, str]] = {}
    for deep in (False, True):
        told: dict[str, Any] = json.loads(
            run("verify", "s", "--json", *(["--deep"] if deep else [])).stdout
        )
        rules[deep] = {each["invariant"]: each["rule"] for each in told["checks"]}
    shown = run("verify", "s").stdout

    assert "byte for byte" in rules[True]["durability"]
    assert not any("byte for byte" in rule for rule in rules[False].values())
    assert "byte for byte" not in shown
    assert re.search(r"durability +ok +every fragment is there, with its size", shown)
    assert verify._SHALLOW.keys() <= rules[True].keys()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["retention", "hold", "nobody"], "retention hold"),
        (["quarantine", "list", "nobody"], "quarantine list"),
        (["read", "nobody"], "read"),
        (["agent", "run", "--data-dir", "no/none", "--committed", "all"], "agent run"),
    ],
)
def test_an_error_names_the_whole_command_that_failed(
    run: Run, command: list[str], words: str
) -> None:
    result = run(*command) if command[0] != "quarantine" else CliRunner().invoke(app, command)

    assert result.stderr.startswith(f"coldstream {words} failed: ")
