"""An agent as a service, in a process of its own: signals, its manager, its log, a new broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.broker import free_ports
from coldstream_devkit.generator import write_stream

ROOT = Path(__file__).parents[2]
STREAM = "__orders_1745252105682952932"
OTHER = "__test_1745252105682952933"
#: `coldstream agent run ARGUMENTS` over a bucket in memory, whose events always come.
PROGRAM = """
import os, sys, time
from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.adapters.place import Place, Remote
from coldstream.cli import options
from coldstream.cli.main import main
from coldstream.errors import UnavailableError
from coldstream.names import parse_data_key
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import commit_runs

uids = iter(range(1, 10**9))

class Store(MemoryObjectStore):
    def put(self, key, body, *, write_id, crc=None):
        if os.environ.get("SLOW"):
            print("uploading", file=sys.stderr, flush=True)
            time.sleep(float(os.environ["SLOW"]))
            raise UnavailableError("S3 did not answer", key=key)
        super().put(key, body, write_id=write_id, crc=crc)
        if key.endswith(".fragment"):
            context = Context(self, catalog, "rabbitmq/", lambda: next(uids))
            commit_runs(context, parse_data_key(key, "rabbitmq/").stream, pause=lambda _: None)

catalog = MemoryCatalog()
remote = Remote(Store(), catalog, MemoryPolicies(), Place("b", "t"))

def connect(**_):
    if "GATE" in os.environ:
        print("connecting", file=sys.stderr, flush=True)
        while not os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
    return remote

options.connect = connect
main()
"""
TIMEOUT = 120.0


@dataclass
class Running:
    """An agent, its manager and its log."""

    process: subprocess.Popen[str]
    manager: socket.socket
    log: Path
    heard: list[str] = field(default_factory=list)

    def hears(self, wanted: str) -> str:
        """Wait for a message to the manager that begins so."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            message = self.manager.recv(4096).decode()
            self.heard.append(message)
            if message.startswith(wanted):
                return message
        raise AssertionError(f"never heard {wanted}: {self.heard}")

    def says(self, wanted: str) -> str:
        """Wait for words in the log; all of it."""
        return eventually(lambda: self.said if wanted in self.said else "", self)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ends(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def eventually(condition: Callable[[], Any], running: Running) -> Any:
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert running.process.poll() is None, running.said
        assert time.monotonic() < end, running.said
        time.sleep(0.05)
    return found


Start = Callable[..., Running]


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """A data directory with one stream, below the directory of a node."""
    directory = tmp_path / "node" / "stream"
    write_stream(directory / STREAM, messages=100, chunk_messages=10)
    return directory


@pytest.fixture
def start(tmp_path: Path, streams: Path) -> Iterator[Start]:
    """Starts agents as a manager of services does, and ends those that are left."""
    begun: list[Running] = []

    def begin(*arguments: str | Path, stderr: Path | None = None, **environment: str) -> Running:
        number = len(begun)
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = str(tmp_path / f"notify-{number}")
        manager.bind(address)
        manager.settimeout(TIMEOUT)
        log = tmp_path / f"stderr-{number}"
        kept = {name: value for name, value in os.environ.items() if "COLDSTREAM" not in name}
        with (stderr or log).open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "agent", "run", *map(str, arguments)],
                env={
                    **kept,
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
                    "NOTIFY_SOCKET": address,
                    "WATCHDOG_USEC": "400000",
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        begun.append(Running(process, manager, log))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
        each.manager.close()


def plain(streams: Path) -> list[str | Path]:
    return ["--data-dir", streams, "--committed", "all"]


def test_the_manager_hears_of_the_first_look_of_every_turn_and_of_the_end(
    start: Start, streams: Path
) -> None:
    agent = start(*plain(streams))

    agent.hears("READY=1")
    agent.hears("WATCHDOG=1")
    agent.hears("STATUS=1 streams, 1 fragments")
    for _ in range(3):
        agent.hears("WATCHDOG=1")

    assert agent.ends() == 0
    agent.hears("STOPPING=1")
    assert agent.heard.index("READY=1") < agent.heard.index("WATCHDOG=1")


def test_a_stream_that_failed_makes_no_stopped_service_fail_and_still_fails_one_run(
    start: Start, streams: Path
) -> None:
    segment = next((streams / STREAM).glob("*.segment"))
    segment.write_bytes(segment.read_bytes()[:-20])

    agent = start(*plain(streams))
    agent.says(STREAM)
    once = start(*plain(streams), "--once")

    assert agent.ends() == 0
    assert once.process.wait(TIMEOUT) == 65


def test_a_stream_that_is_gone_makes_no_stopped_service_fail(start: Start, streams: Path) -> None:
    agent = start(*plain(streams), "--log", "json")
    agent.hears("STATUS=1 streams, 1 fragments")
    shutil.rmtree(streams / STREAM)
    agent.hears("STATUS=0 streams")

    assert agent.ends() == 0


def test_an_upload_under_way_makes_no_stopped_service_fail(start: Start, streams: Path) -> None:
    agent = start(*plain(streams), "--flush", "0", SLOW="0.5")
    agent.says("uploading")

    assert agent.ends() == 0
    assert "agent run failed" not in agent.said


def test_a_new_broker_without_a_stream_directory_is_waited_for(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    kept = streams.rename(tmp_path / "elsewhere")
    agent = start(*plain(streams))

    agent.hears("READY=1")
    assert "not there yet" in agent.hears("STATUS=")
    agent.hears("WATCHDOG=1")
    kept.rename(streams)

    agent.hears("STATUS=1 streams, 1 fragments")
    assert agent.ends() == 0
    assert agent.said.count("not there yet") == 1


def test_a_service_that_waits_for_its_directory_can_be_stopped(start: Start, streams: Path) -> None:
    agent = start(*plain(streams.with_name("streams-to-come")))
    agent.says("not there yet")

    assert agent.ends() == 0


@pytest.mark.parametrize("arguments", [["--once"], []])
def test_a_directory_that_no_broker_will_make_is_an_error(
    start: Start, tmp_path: Path, arguments: list[str]
) -> None:
    missing = tmp_path / "no-node" / "stream" if not arguments else tmp_path / "none"

    agent = start(*plain(missing), *arguments)

    assert agent.process.wait(TIMEOUT) == 2
    assert str(missing) in agent.said


def test_sighup_takes_over_what_can_change_and_says_what_cannot(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    write_stream(streams / OTHER, messages=50, chunk_messages=10)
    names = tmp_path / "names.json"
    names.write_text(
        json.dumps({
            STREAM: {"vhost": "/", "queue": "orders"},
            OTHER: {"vhost": "test", "queue": "test"},
        })
    )  # fmt: skip
    file = tmp_path / "agent.toml"
    base = f'data_dir = "{streams}"\ncommitted = "all"\nnames = "{names}"\nlog = "json"\n'
    file.write_text(f'{base}[[streams]]\nvhost = "test"\ntier = false\n')
    agent = start("--config", file)
    agent.hears("STATUS=1 streams, 1 fragments")

    file.write_text(f"{base}flush = 5\nuploads = 7\n")
    agent.process.send_signal(signal.SIGHUP)

    assert "MONOTONIC_USEC=" in agent.hears("RELOADING=1")
    agent.hears("READY=1")
    agent.hears("STATUS=2 streams, 2 fragments")
    (told,) = [each for each in lines(agent) if each["event"] == "reload"]
    assert "taken over: flush, streams" in told["message"]
    assert "only after a restart: uploads" in told["message"]
    assert agent.ends() == 0


def test_sighup_while_an_agent_starts_ends_it_not_and_is_heeded_at_its_first_look(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    """What had been read before is another file than the one that the signal is about."""
    file, gate = tmp_path / "agent.toml", tmp_path / "gate"
    base = f'data_dir = "{streams}"\ncommitted = "all"\n'
    file.write_text(base)
    agent = start("--config", file, GATE=str(gate))
    agent.says("connecting")

    file.write_text(f"{base}flush = 5\n")
    agent.process.send_signal(signal.SIGHUP)
    gate.touch()

    assert "taken over: flush" in agent.says("was read again")
    agent.hears("STATUS=1 streams, 1 fragments")
    assert agent.ends() == 0


def test_sighup_ends_an_agent_without_a_file_as_its_terminal_goes(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    agent = start("--data-dir", streams, "--committed", "all", GATE=str(tmp_path / "gate"))
    agent.says("connecting")

    assert agent.ends(signal.SIGHUP) == -signal.SIGHUP


def test_an_agent_whose_stderr_takes_nothing_is_stopped_with_0_all_the_same(
    start: Start, streams: Path
) -> None:
    agent = start(
        "--data-dir", streams, "--committed", "all", stderr=Path("/dev/full"), PYTHONUNBUFFERED=""
    )
    agent.hears("STATUS=1 streams, 1 fragments")

    assert agent.ends() == 0


def test_a_broken_file_keeps_the_old_settings_and_says_so(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'data_dir = "{streams}"\ncommitted = "all"\nlog = "json"\n')
    agent = start("--config", file)
    agent.hears("STATUS=1 streams, 1 fragments")

    file.write_text("[[streams]]\ntire = false\n")
    agent.process.send_signal(signal.SIGHUP)

    agent.hears("RELOADING=1")
    agent.hears("READY=1")
    agent.hears("WATCHDOG=1")
    (told,) = [each for each in lines(agent) if each["event"] == "reload"]
    assert (told["level"], told["kind"], told["key"]) == ("error", "invalid_input", str(file))
    assert "the old settings stay" in told["message"]
    assert "did you mean tier?" in told["message"]
    assert agent.ends() == 0


def lines(agent: Running) -> list[dict[str, Any]]:
    """What the log holds; all of it must be JSON."""
    return [json.loads(line) for line in agent.said.splitlines()]


def test_every_line_of_a_json_log_is_an_object_that_says_when_and_what(
    start: Start, streams: Path
) -> None:
    segment = next((streams / STREAM).glob("*.segment"))
    segment.write_bytes(segment.read_bytes()[:-20])
    (streams / "odd name").mkdir()
    (streams / "__bare_1").mkdir()

    agent = start(*plain(streams), "--log", "json")
    agent.says('"progress"')
    agent.says("__bare_1")

    assert agent.ends() == 0
    found = {each["event"]: each for each in lines(agent)}
    assert {"error", "warning", "progress", "skipped"} <= found.keys()
    for each in found.values():
        assert {"time", "level", "event", "message"} <= each.keys()
        assert each["time"].endswith("Z")
    error = found["error"]
    assert (error["stream"], error["kind"], error["level"]) == (STREAM, "corrupt_data", "error")
    assert isinstance(error["offset"], int)
    assert found["progress"]["streams"] == 1


def test_an_agent_that_cannot_begin_says_so_in_json_too(start: Start, tmp_path: Path) -> None:
    agent = start(*plain(tmp_path / "a" / "b"), "--log", "json")

    assert agent.process.wait(TIMEOUT) == 2
    (error,) = lines(agent)
    assert (error["kind"], error["key"]) == ("invalid_input", str(tmp_path / "a" / "b"))


def test_a_stream_whose_name_a_rule_has_to_know_is_not_tiered_under_a_guess(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(
        f'data_dir = "{streams}"\ncommitted = "all"\n[[streams]]\nname = "test"\ntier = false\n'
    )

    agent = start("--config", file)

    agent.hears("STATUS=0 streams")
    agent.says("nobody says what these directories are called")
    assert STREAM in agent.said
    assert "holds a segment file" not in agent.said
    assert agent.ends() == 0


def test_rules_beside_a_file_of_offsets_survive_its_loss(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    offsets, file = tmp_path / "offsets.json", tmp_path / "agent.toml"
    offsets.write_text(json.dumps({STREAM: "all"}))
    file.write_text(
        f'data_dir = "{streams}"\ncommitted = "{offsets}"\n[[streams]]\nname = "a"\ntier = false\n'
    )
    agent = start("--config", file)
    agent.hears("READY=1")

    offsets.unlink()

    for _ in range(3):
        agent.hears("WATCHDOG=1")
    assert agent.ends() == 0


def test_a_rule_decides_how_a_stream_is_cut_from_the_first_look_on(
    start: Start, streams: Path, tmp_path: Path
) -> None:
    names = tmp_path / "names.json"
    names.write_text(json.dumps({STREAM: {"vhost": "/", "queue": "orders"}}))
    file = tmp_path / "agent.toml"
    file.write_text(
        f'data_dir = "{streams}"\ncommitted = "all"\nnames = "{names}"\n'
        '[[streams]]\nname = "orders"\nfragment_size = "20KiB"\n'
    )

    agent = start("--config", file)

    agent.hears("STATUS=1 streams, 5 fragments")
    assert agent.ends() == 0


def test_an_agent_that_waits_for_its_directory_is_healthy(start: Start, streams: Path) -> None:
    (port,) = free_ports(1)
    agent = start(*plain(streams.with_name("to-come")), "--metrics-port", str(port))
    agent.hears("READY=1")
    agent.hears("WATCHDOG=1")

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT) as page:
        text = page.read().decode()

    age = float(text.split("\ncoldstream_agent_loop_age_seconds ")[1].split()[0])
    assert age < 30
    assert "coldstream_agent_streams 0.0" in text
    assert agent.ends() == 0
