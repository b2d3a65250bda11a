"""One server on one directory, on loopback only; nothing but our own process is ever ended."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from coldstream.errors import ConflictError, InvalidInputError, UnavailableError
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.local import process
from coldstream_devkit.local.install import install
from coldstream_devkit.local.process import EmbeddedAwsError
from coldstream_devkit.local.progress import silent
from tests.support.probe_stack import Probe, eventually

pytestmark = pytest.mark.emulator


def test_the_server_listens_on_loopback_only(probe: Probe) -> None:
    probe.invoke(do="nothing")
    server = psutil.Process(probe.emulator.server.pid)

    sockets = []
    for each in (server, *server.children(recursive=True)):
        # A socket of UDP has no state. In a Lambda it is the tracer's, which only sends.
        open_ones = {psutil.CONN_LISTEN, *([psutil.CONN_NONE] if each == server else [])}
        # A child may end between the list and the look at it.
        with suppress(psutil.NoSuchProcess):
            sockets += [one for one in each.net_connections("inet") if one.status in open_ones]

    assert {one.laddr.ip for one in sockets} == {"127.0.0.1"}


@pytest.mark.parametrize(("skip", "code"), [("", 0), ("loopback_only", 1)])
def test_no_part_of_the_server_can_bind_another_interface(
    pytestconfig: pytest.Config, tmp_path: Path, skip: str, code: int
) -> None:
    program = f"""
        import socket, sys
        from localaws.corrections import EARLY, apply
        from localaws.options import parse
        apply(EARLY, parse(["--state-dir", {str(tmp_path)!r}, "--python", "-", "--skip", {skip!r}]))
        socket.socket().bind(("127.0.0.1", 0))
        try:
            socket.socket().bind(("0.0.0.0", 0))
        except PermissionError:
            sys.exit(0)
        sys.exit(1)
    """
    python = install(pytestconfig.rootpath, progress=silent)
    server_path = Path(process.__file__).parent / "server"
    done = subprocess.run(
        [python, "-W", "ignore", "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": str(server_path)},
        check=False,
    )
    assert done.returncode == code


def test_a_second_server_on_the_same_directory_is_refused(emulator: Emulator) -> None:
    with pytest.raises(ConflictError, match="runs on"):
        process.start(emulator.root, emulator.server.state_dir, progress=silent)


def test_state_that_is_tied_to_a_port_is_not_served_on_another(
    emulator: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "server.json").write_text('{"pid": 1, "port": 4567}')

    with pytest.raises(InvalidInputError, match="port 4567"):
        process.start(emulator.root, tmp_path, port=4568, progress=silent)


def test_a_port_that_is_taken_is_named_in_the_error_with_what_helps(
    emulator: Emulator, tmp_path: Path
) -> None:
    """The network and AWS_REGION were to be checked."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(
            EmbeddedAwsError, match=rf"cannot listen on 127.0.0.1:{port}"
        ) as refused:
            process.start(emulator.root, tmp_path, port=port, progress=silent)
        assert "--port 0" in str(refused.value.remedy)

        # What a directory holds has URLs with its port in them: no other one helps.
        (tmp_path / "server.json").write_text(f'{{"pid": 1, "port": {port}}}')
        with pytest.raises(EmbeddedAwsError) as tied:
            process.start(emulator.root, tmp_path, port=port, progress=silent)
        assert "--state" in str(tied.value.remedy)
        assert "--port" not in str(tied.value.remedy)


def test_a_start_that_failed_does_not_forget_which_port_the_state_is_tied_to(
    emulator: Emulator, tmp_path: Path
) -> None:
    (tmp_path / "server.json").write_text('{"pid": 1, "port": 4567}')

    with pytest.raises(UnavailableError):
        process.start(emulator.root, tmp_path, skip="nonsense", progress=silent)

    assert process.recorded_port(tmp_path) == 4567


def test_a_server_that_cannot_start_shows_the_end_of_its_log(
    emulator: Emulator, tmp_path: Path
) -> None:
    with pytest.raises(EmbeddedAwsError, match="no such correction: nonsense"):
        process.start(emulator.root, tmp_path, skip="nonsense", progress=silent)


def test_a_stop_never_signals_a_process_that_does_not_hold_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        try:
            # As after a crash, when the system has given the server's pid to somebody else.
            (tmp_path / "server.lock").write_text(str(other.pid))
            (tmp_path / "server.json").write_text(f'{{"pid": {other.pid}, "port": 4566}}')

            assert process.running(tmp_path) is None
            assert not process.stop(tmp_path)
            assert other.poll() is None
        finally:
            other.kill()


def test_a_server_ends_when_the_process_that_wanted_it_was_killed(
    emulator: Emulator, tmp_path: Path
) -> None:
    program = f"""
        import sys, time
        from pathlib import Path
        from coldstream_devkit.local import process
        process.start(Path({str(emulator.root)!r}), Path(sys.argv[1]), exit_with_parent=True)
        print("started", flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(emulator.root / "src")},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        assert process.running(tmp_path) is not None
        parent.kill()

    assert eventually(lambda: process.running(tmp_path) is None)


def test_a_server_whose_directory_was_removed_ends_and_leaves_the_port_to_the_next(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    root = pytestconfig.rootpath
    first = process.start(root, tmp_path / "state", exit_with_parent=True, progress=silent)
    shutil.rmtree(tmp_path / "state")
    assert eventually(lambda: psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE)

    second = process.start(
        root, tmp_path / "state", port=first.port, exit_with_parent=True, progress=silent
    )

    assert process.stop(second.state_dir)


def test_a_stop_is_quick_even_with_connections_open(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    server = process.start(pytestconfig.rootpath, tmp_path, exit_with_parent=True, progress=silent)
    with socket.create_connection(("127.0.0.1", server.port)):
        started = time.monotonic()
        assert process.stop(tmp_path)
        assert time.monotonic() - started < 15  # it is killed after 20
    assert not psutil.pid_exists(server.pid)
