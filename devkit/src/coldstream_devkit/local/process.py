"""Start and stop the server process. Only a process that holds our lock is ever signalled."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import ConflictError, InternalError, InvalidInputError, UnavailableError
from coldstream_devkit.local import state
from coldstream_devkit.local.install import exclusive, install
from coldstream_devkit.local.progress import Progress, to_stderr

ENV_SKIP = "COLDSTREAM_LOCAL_SKIP"
REGION = "us-east-1"
ACCOUNT = "000000000000"
# Any key would do. This one is a word, because twelve digits would choose another account.
ACCESS_KEY = "local"
SECRET_KEY = "local"

_HOST = "127.0.0.1"
_SERVER_PATH = Path(__file__).parent / "server"
_LOG_TAIL_BYTES = 3000
# All that the server gets from the caller's environment. Settings for AWS, proxies and
# certificates must not reach it, let alone the handlers that it starts.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")

#: The code with which a server ends that may not have its port is the reason's own number.
_NO_PORT = (errno.EADDRINUSE, errno.EACCES)

# Servers that this very process has started: an ended child stays until its parent looks at it.
_children: dict[int, subprocess.Popen[bytes]] = {}


class EmbeddedAwsError(UnavailableError):
    """The embedded AWS does not do what is asked of it: no network and no setting of AWS helps."""

    remedy = "read what it says above; its whole log is server.log in the directory of --state"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        state_dir: where it keeps everything.
        pid: its process.
        port: on 127.0.0.1.
    """

    state_dir: Path
    pid: int
    port: int

    @property
    def endpoint(self) -> str:
        """URL of all services. An IP address: SDKs then put the bucket into the path."""
        return f"http://{_HOST}:{self.port}"

    def client_environment(self) -> dict[str, str]:
        """The variables that point any AWS SDK at this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def start(
    root: Path,
    state_dir: Path,
    *,
    port: int = 0,
    handler_python: Path | None = None,
    snapshot_seconds: float = 5.0,
    skip: str | None = None,
    exit_with_parent: bool = False,
    timeout_seconds: float = 60.0,
    progress: Progress = to_stderr,
) -> Server:
    """Start a server and wait until it answers.

    Args:
        root: the project, where `.localaws` is or will be.
        state_dir: where the server keeps everything; one server at a time.
        port: on 127.0.0.1; 0 for the one used last on this directory, or else any free one.
        handler_python: interpreter of Lambda functions and Glue jobs, which need pyspark in it; by
            default the one that runs this.
        snapshot_seconds: the most that `kill -9` of the server can lose.
        skip: corrections to leave out, with commas between; by default from COLDSTREAM_LOCAL_SKIP.
        exit_with_parent: end the server when this process ends, however it ends.
        timeout_seconds: to wait for it.
        progress: told what takes long.

    Raises:
        ConflictError: a server runs on this directory already.
        InvalidInputError: what the directory holds is tied to another port.
        EmbeddedAwsError: it did not start, or not in time; the message ends with its log.
    """
    state_dir = state_dir.resolve()
    python = install(root, progress=progress)
    state_dir.mkdir(parents=True, exist_ok=True)
    with exclusive(state_dir):
        if _holder(state_dir) is not None:
            raise ConflictError(f"a server runs on {state_dir} already")
        used = recorded_port(state_dir)
        if used is not None and port not in (0, used):
            # Queue URLs, in the state and in stack outputs, hold the port.
            raise InvalidInputError(
                f"{state_dir} was made on port {used}: use that port, or wipe the directory first"
            )
        process = _launch(
            state_dir,
            *(str(python), "-m", "localaws", "--state-dir", str(state_dir)),
            *("--port", str(port or used or 0)),
            *("--python", str(handler_python or sys.executable)),
            *("--snapshot-seconds", str(snapshot_seconds)),
            *("--skip", os.environ.get(ENV_SKIP, "") if skip is None else skip),
            *(["--exit-with-parent"] if exit_with_parent else []),
        )
        try:
            return _wait_until_ready(process, state_dir, timeout_seconds)
        except BaseException:
            if process.poll() is None:
                process.kill()
            process.wait()
            del _children[process.pid]
            raise


def _launch(state_dir: Path, *command: str) -> subprocess.Popen[bytes]:
    with (state_dir / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=state_dir,
            env=_clean_environment(state_dir),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal that started it must not cut its save short.
            start_new_session=True,
        )
    _children[process.pid] = process
    return process


def running(state_dir: Path) -> Server | None:
    """The server that runs on a state directory, if any."""
    state_dir = state_dir.resolve()
    pid = _holder(state_dir)
    if pid is None:
        return None
    try:
        about = json.loads((state_dir / "server.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None  # still starting
    return Server(state_dir=state_dir, pid=pid, port=about["port"]) if about["pid"] == pid else None


def stop(state_dir: Path, *, timeout_seconds: float = 20.0) -> bool:
    """Stop the server on a state directory: it saves and ends, or is killed after the time.

    Returns:
        Whether there was one.

    Raises:
        InternalError: it could not even be killed.
    """
    _reap_ended()
    state_dir = state_dir.resolve()
    pid = _holder(state_dir)
    if pid is None:
        return False
    # Whoever holds the lock is a server on this directory, so a pid that the system has given to
    # somebody else since is never signalled.
    for number, seconds in ((signal.SIGTERM, timeout_seconds), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if _holder(state_dir) != pid:
                _reap(pid)
                return True
            time.sleep(0.02)
    raise InternalError(f"process {pid} does not end")


def wipe(state_dir: Path) -> list[str]:
    """Remove everything that a stopped server has kept.

    Returns:
        Names of what is in the directory, but not ours; it stays.

    Raises:
        ConflictError: a server runs on it.
        InvalidInputError: it is a link, or no directory of ours; nothing was removed.
    """
    state.check_removable(state_dir)
    if _holder(state_dir.resolve()) is not None:
        raise ConflictError(f"a server runs on {state_dir}")
    return state.remove(state_dir)


def _wait_until_ready(process: subprocess.Popen[bytes], state_dir: Path, seconds: float) -> Server:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise EmbeddedAwsError(
                f"the embedded AWS ended with code {process.returncode}{_log_tail(state_dir)}",
                remedy=_another_port(state_dir) if process.returncode in _NO_PORT else None,
            )
        server = running(state_dir)
        if server is not None and server.pid == process.pid and _answers(server):
            return server
        time.sleep(0.03)
    raise EmbeddedAwsError(
        f"the embedded AWS did not answer within {seconds:.0f} s{_log_tail(state_dir)}"
    )


def _another_port(state_dir: Path) -> str:
    if recorded_port(state_dir) is None:
        return "give another port with --port, or --port 0 for any free one"
    return "end what listens there: what is kept is tied to that port; or give another --state"


def _answers(server: Server) -> bool:
    # No proxy: the environment may name one that knows nothing of our loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server.endpoint}/_ministack/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _clean_environment(state_dir: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        "HOME": str(state_dir),
        "PYTHONPATH": str(_SERVER_PATH),
        "PYTHONUNBUFFERED": "1",
    }


def _holder(state_dir: Path) -> int | None:
    """The process that holds the lock of a state directory, by its own word."""
    try:
        lock = (state_dir / "server.lock").open("r")
    except FileNotFoundError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = lock.read()
            return int(text) if text else None
        return None


def _reap(pid: int) -> None:
    """Let go of an ended process that is our own child, so that nothing of it stays."""
    child = _children.pop(pid, None)
    if child is not None:
        child.wait()  # it gave up its lock with its last breath


def _reap_ended() -> None:
    """Let go of all our children that have ended by themselves or were killed by others."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]


def recorded_port(state_dir: Path) -> int | None:
    """The port that what a state directory holds is tied to, if it holds anything."""
    try:
        about = json.loads((state_dir / "server.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return int(about["port"])


def _log_tail(state_dir: Path) -> str:
    text = (state_dir / "server.log").read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    return f"; its log:\n{text.strip()}" if text.strip() else " and logged nothing"
