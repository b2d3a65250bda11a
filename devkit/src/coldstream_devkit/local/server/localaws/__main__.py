"""Start the server: lock the state directory, take the port, correct MiniStack, serve.

    python -m localaws --state-dir DIR --port 4566 --python .venv/bin/python

Once it answers, `DIR/server.json` says where. The lock on `DIR/server.lock` is held as long as the
process lives, so whoever wants to know whether a server runs on a directory tries to lock it.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.metadata
import json
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from . import glue_process
from .corrections import EARLY, LATE, apply
from .counting import counted
from .options import parse

MINISTACK_VERSION = "1.5.33"
HOST = "127.0.0.1"


def main() -> None:
    """Run until SIGTERM; then save and end."""
    options = parse()
    version = importlib.metadata.version("ministack")
    if version != MINISTACK_VERSION:
        sys.exit(f"the corrections are for ministack {MINISTACK_VERSION}, this is {version}")
    options.state_dir.mkdir(parents=True, exist_ok=True)
    lock = _lock(options.state_dir)
    listener = _listen(options.port)
    port = int(listener.getsockname()[1])
    _set_environment(options.state_dir, port)
    apply(EARLY, options)

    from ministack import app

    apply(LATE, options)
    # A line for each service at each snapshot would bury everything else.
    logging.getLogger("persistence").setLevel(logging.WARNING)
    _watch(options.state_dir, lock, parent=os.getppid() if options.exit_with_parent else None)
    # Not asyncio.run: it would wait for all threads, and one of MiniStack's may wait for an
    # hour itself (a CloudFormation wait condition). Everything is saved by then.
    asyncio.new_event_loop().run_until_complete(_serve(app, listener, options.state_dir, port))
    _end_workers()
    lock.close()
    os._exit(0)


def _lock(state_dir: Path) -> TextIO:
    """Hold the lock of the state directory: two servers on one directory would ruin it."""
    lock = (state_dir / "server.lock").open("a+")
    # Who asks whether a server runs takes a shared lock for a moment: hence more than one try.
    deadline = time.monotonic() + 1
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit(f"another server uses {state_dir}")
            time.sleep(0.01)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as exc:
        sys.stderr.write(f"cannot listen on {HOST}:{port}: {exc.strerror}\n")
        sys.exit(exc.errno)  # by which whoever has started it knows the reason
    return listener


def _set_environment(state_dir: Path, port: int) -> None:
    """What MiniStack reads when it is imported; it gets nothing else about AWS from outside."""
    scratch = state_dir / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)  # sandboxes of a server that was killed
    scratch.mkdir()
    os.environ.update(
        AWS_CONFIG_FILE=os.devnull,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        GATEWAY_PORT=str(port),
        IOT_MTLS_ENABLED="0",
        MINISTACK_HOST=HOST,
        PERSIST_STATE="1",
        S3_DATA_DIR=str(state_dir / "objects"),
        S3_PERSIST="1",
        SFTP_ENABLED="0",
        STATE_DIR=str(state_dir / "services"),
        TMPDIR=str(scratch),
    )


async def _serve(app: Any, listener: socket.socket, state_dir: Path, port: int) -> None:
    from hypercorn.asyncio import serve  # type: ignore[import-not-found]  # only in .localaws
    from hypercorn.config import Config  # type: ignore[import-not-found]  # as above

    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 1
    config.shutdown_timeout = 30
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    announcement = asyncio.create_task(_announce(state_dir, port))
    # MiniStack saves everything when the server is told to shut down.
    await serve(counted(app.app), config, shutdown_trigger=stop.wait)
    announcement.cancel()


async def _announce(state_dir: Path, port: int) -> None:
    """Write server.json as soon as the server answers."""
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        break
    content = {"pid": os.getpid(), "port": port, "started": time.time()}
    unfinished = state_dir / "server.json.tmp"
    unfinished.write_text(json.dumps(content), encoding="utf-8")
    unfinished.replace(state_dir / "server.json")


def _watch(state_dir: Path, lock: TextIO, *, parent: int | None) -> None:
    """End when the parent has ended, or when somebody has removed the state directory."""
    mine = os.fstat(lock.fileno()).st_ino

    def watch() -> None:
        while parent is None or os.getppid() == parent:
            try:
                held = (state_dir / "server.lock").stat().st_ino == mine
            except FileNotFoundError:
                held = False
            if not held:
                # Nobody can find this server any more, and there is nothing left to save.
                os._exit(1)
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="localaws-watch", daemon=True).start()


def _end_workers() -> None:
    """End the sandboxes of functions and the runs of jobs, which are our own children."""
    from ministack.core import lambda_runtime

    glue_process.end_all()
    lambda_runtime.reset()


if __name__ == "__main__":
    main()
