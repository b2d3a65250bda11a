"""One run of a Spark job as a process: its command, its environment, its end and its log."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

CORES = 2
_POLL_SECONDS = 0.1
_FLUSH_SECONDS = 1.0
_LONGEST_MESSAGE = 1000
_TAIL_BYTES = 64_000

# A job must not outlive the server, however the server ends. A JVM that it has started ends by
# itself when its standard input does. A server that was gone before the job could ask to be ended
# with it is noticed by its number.
_BOOT = (
    "import ctypes, os, runpy, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]):\n"
    "    sys.exit('the server has ended')\n"
    "sys.argv = sys.argv[2:]\n"
    "sys.path[0] = ''\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
)
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "HOME", "JAVA_HOME")
# A run here takes seconds. Most of them went into compiling what runs once, and into threads of a
# collector that has nothing to collect. Settings of the run's own come later and win.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# All that run now, to be ended with the server.
_running: dict[int, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        state: SUCCEEDED, FAILED, TIMEOUT or STOPPED, in Glue's words.
        message: what a failed run has to say.
    """

    state: str
    message: str = ""


def command(python: str, script: Path, arguments: Mapping[str, str]) -> list[str]:
    """The command line of a run: what Glue hands to a script, one `--key value` after another."""
    words = [word for key, value in arguments.items() for word in (key, str(value))]
    return [python, "-c", _BOOT, str(os.getpid()), str(script), *words]


def environment(
    *, python: str, work: Path, modules: list[Path], arguments: Mapping[str, str], aws: str
) -> dict[str, str]:
    """What the process sees: no setting of the server, our endpoint, two local cores for Spark.

    Args:
        python: of the driver and of Spark's workers.
        work: directory of the run.
        modules: the files of --extra-py-files; they come before what is installed.
        arguments: of the run; --conf is for Spark.
        aws: URL of all services.
    """
    submit = ["--master", f"local[{CORES}]", "--driver-memory", "1g"]
    settings = [
        "spark.driver.bindAddress=127.0.0.1",
        "spark.driver.host=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.ui.showConsoleProgress=false",
        f"spark.driver.extraJavaOptions={_JVM}",
        # As in Glue, further settings stand in the value of the first: "a=1 --conf b=2".
        *(part.strip() for part in arguments.get("--conf", "").split("--conf") if part.strip()),
    ]
    for setting in settings:
        submit += ["--conf", setting]
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": aws,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
        "PYTHONPATH": os.pathsep.join(map(str, modules)),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LAUNCHER_OPTS": _JVM,
        "SPARK_LOCAL_DIRS": str(work),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(work),
    }


def run(
    words: list[str],
    variables: dict[str, str],
    work: Path,
    *,
    limit_seconds: float,
    stopped: Callable[[], bool],
    log: Callable[[str, bytes], None],
) -> Ended:
    """Run a command until it ends, is stopped, or its time is over; nothing of it stays.

    Args:
        words: the command.
        variables: its environment.
        work: its directory, where its output is kept.
        limit_seconds: the longest run.
        stopped: whether somebody has stopped it.
        log: given ("output" or "error", new bytes that end in a line feed) while it runs.
    """
    paths = {"output": work / "stdout", "error": work / "stderr"}
    with paths["output"].open("wb") as output, paths["error"].open("wb") as error:
        process = subprocess.Popen(
            words,
            cwd=work,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error,
            start_new_session=True,
        )
    with _lock:
        _running[process.pid] = process
    told = dict.fromkeys(paths, 0)
    deadline, flush = time.monotonic() + limit_seconds, 0.0
    ended: Ended | None = None
    try:
        while process.poll() is None and ended is None:
            if stopped():
                ended = Ended("STOPPED")
            elif time.monotonic() > deadline:
                ended = Ended("TIMEOUT", "Job timed out")
            elif time.monotonic() >= flush:
                _tell(paths, told, log, whole=False)
                flush = time.monotonic() + _FLUSH_SECONDS
            time.sleep(_POLL_SECONDS)
    finally:
        _kill(process)
        with _lock:
            _running.pop(process.pid, None)
        _tell(paths, told, log, whole=True)
    if ended is not None:
        return ended
    if process.returncode == 0:
        return Ended("SUCCEEDED")
    return Ended("FAILED", reason(_tail(paths["error"]), process.returncode))


def end_all() -> None:
    """End every run, with the server."""
    with _lock:
        processes = list(_running.values())
    for process in processes:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole session: the JVM is a child of the driver. It is ours even when the driver is gone.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tell(
    paths: dict[str, Path], told: dict[str, int], log: Callable[[str, bytes], None], *, whole: bool
) -> None:
    for name, path in paths.items():
        with path.open("rb") as file:
            file.seek(told[name])
            new = file.read()
        if not whole:
            new = new[: new.rfind(b"\n") + 1]
        if new:
            told[name] += len(new)
            log(name, new)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def reason(errors: str, code: int) -> str:
    """The error in words: the last line of the last traceback, or the last line at all."""
    _, traceback, after = errors.rpartition("Traceback (most recent call last):")
    lines = [line.strip() for line in (after if traceback else errors).splitlines()]
    if traceback:
        # The exception is the first line that is not indented, and Spark may log behind it.
        lines = [line for line in after.splitlines() if line and not line.startswith(" ")]
        return lines[0][:_LONGEST_MESSAGE] if lines else f"exit code {code}"
    told = [line for line in lines if line]
    return told[-1][:_LONGEST_MESSAGE] if told else f"exit code {code}"
