"""The environment `.localaws` that the server runs in, made from pinned requirements."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coldstream.errors import UnavailableError
from coldstream_devkit.local.progress import Progress, to_stderr

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
DIRECTORY = ".localaws"
_STAMP = "coldstream-requirements"
_INSTALL_TIMEOUT_SECONDS = 600


def install(root: Path, *, progress: Progress = to_stderr) -> Path:
    """Make `.localaws` below `root`, unless it is there and from the same requirements.

    Safe to call in several processes at once.

    Returns:
        Its Python interpreter.

    Raises:
        UnavailableError: uv is missing, or the packages could not be installed.
    """
    directory = root / DIRECTORY
    python = directory / "bin" / "python"
    stamp = directory / _STAMP
    wanted = _digest()
    if _is_made(stamp, wanted, python):
        return python
    with exclusive(root):
        if _is_made(stamp, wanted, python):
            return python
        progress(f"installing the embedded AWS into {directory}")
        shutil.rmtree(directory, ignore_errors=True)
        uv = _find_uv()
        _run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(directory)])
        _run(
            [
                *(uv, "pip", "install", "--quiet"),
                *("--python", str(python), "--requirements", str(REQUIREMENTS)),
            ]
        )
        stamp.write_text(wanted, encoding="ascii")
    return python


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock out other processes that would make the same.

    Args:
        path: a directory, which is locked itself so that no file is left; or a file for the lock.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digest() -> str:
    digest = hashlib.sha256(REQUIREMENTS.read_bytes())
    digest.update(f"{sys.version_info.major}.{sys.version_info.minor}".encode())
    return digest.hexdigest()


def _is_made(stamp: Path, wanted: str, python: Path) -> bool:
    # The stamp is written last, so an installation that was cut short has none.
    return stamp.is_file() and stamp.read_text(encoding="ascii") == wanted and python.exists()


def _find_uv() -> str:
    found = shutil.which("uv")
    if found:
        return found
    beside = Path(sys.executable).with_name("uv")
    if beside.exists():
        return str(beside)
    raise UnavailableError("uv is needed to install the embedded AWS", remedy="pip install uv")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise UnavailableError(f"{' '.join(command[:3])} took longer than 10 minutes") from exc
    if done.returncode:
        raise UnavailableError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-2000:]}")
