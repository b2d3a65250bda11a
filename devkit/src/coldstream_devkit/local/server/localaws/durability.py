"""State that survives `kill -9`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from .options import Options

_log = logging.getLogger("localaws.durability")
_ATTEMPTS = 5


def snapshots(options: Options) -> None:
    """Save the state of all services every few seconds.

    AWS: what was answered is durable. MiniStack: S3 objects are on disk at once, all else (tables,
    queues, functions, stacks) is only written on a clean stop.
    """
    from ministack import app

    load = app._load_persisted_state

    def repeat() -> None:
        spent = 0.0
        while True:
            # However long a snapshot takes, the server has most of the time for its work.
            time.sleep(max(options.snapshot_seconds, 4 * spent))
            started = time.monotonic()
            save(app)
            spent = time.monotonic() - started

    def load_then_repeat() -> None:
        load()
        # Not earlier: a snapshot of a server that has not loaded yet would empty its state.
        threading.Thread(target=repeat, name="localaws-snapshots", daemon=True).start()

    app._load_persisted_state = load_then_repeat


def save(app: Any) -> None:
    """Save each service that can be read without being changed meanwhile."""
    states: dict[str, Callable[[], Any]] = app._build_persistence_save_dict()
    app.save_all({name: _patient(name, state) for name, state in states.items()})


def _patient(name: str, state: Callable[[], Any]) -> Callable[[], Any]:
    """Read the state again if a request changed it while it was copied; skip it after some tries.

    `None` tells MiniStack to leave the service's previous file alone.
    """

    def read() -> Any:
        for attempt in range(_ATTEMPTS):
            try:
                return state()
            except RuntimeError as exc:  # "dictionary changed size during iteration"
                last = exc
                time.sleep(0.01 * 2**attempt)
        _log.warning("no snapshot of %s this time: %s", name, last)
        return None

    return read
