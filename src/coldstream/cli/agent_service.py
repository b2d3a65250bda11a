"""An agent as a service: what the manager, the log and a person who changes its file get to know.

All but `stop` and `ask_to_reload`, which signal handlers call, is for the agent's own thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.disk.directory import nothing_found
from coldstream.agent.steering import SteeredAgent
from coldstream.agent.telling.notify import Manager
from coldstream.agent.telling.progress import Progress
from coldstream.cli.agent_file import read_file
from coldstream.cli.agent_log import AgentLog, Totals
from coldstream.cli.agent_progress import AgentProgress
from coldstream.cli.agent_setup import Setup, reloaded
from coldstream.errors import InvalidInputError
from coldstream.wording import listed

_SHOWN = 3
#: What is being uploaded when the agent is stopped may go on for so long: less than its manager
#: waits (TimeoutStopSec), however slow the link is. The next run uploads it again.
_LAST_SECONDS = 30.0


@dataclass(slots=True)
class Service:
    """One agent that runs.

    Args:
        worker: the agent; its reports come here.
        setup: that it was started with, and what was taken over since.
        manager: of services.
        log: for stderr.
        wait_seconds: between two looks for a data directory that is not there.
        listeners: get what is reported too, and nothing as long as there is no data directory.
    """

    worker: SteeredAgent
    setup: Setup
    manager: Manager
    log: AgentLog
    wait_seconds: float = 1.0
    progress: AgentProgress = field(init=False)
    listeners: list[Callable[[list[Progress]], None]] = field(default_factory=list)
    _stopped: bool = False  # no Event: whoever waits for one holds its lock when a signal comes
    _reload: bool = False
    _ready: bool = False

    def __post_init__(self) -> None:
        self.progress = AgentProgress(self.log)
        self.worker.report = self.report

    def stop(self) -> None:
        """End after the uploads that are under way."""
        self.manager.stopping()
        self._stopped = True
        self.worker.valve.end_in(_LAST_SECONDS)
        self.worker.stop()

    def ask_to_reload(self) -> None:
        """Read the file again after the next look."""
        self._reload = True

    def directory_is_there(self) -> bool:
        """Wait until the data directory is there; False if stopped before.

        A new broker makes it with its first stream. One run does not wait, nor does anybody wait
        for a directory whose parent is missing: that is another path than the broker's.
        """
        data_dir, told = self.worker.data_dir, False
        while not (self._stopped or self.setup.options.once) and _is_to_come(data_dir):
            words = (
                f"{data_dir} is not there yet; a broker makes it with its first stream, and until"
                " then there is nothing to upload"
            )
            if not told:
                with suppress(OSError):  # stderr may be on a disk that is full
                    self.log.info("waiting", words)
                told = True
            self._turn(words, [])
            time.sleep(self.wait_seconds)
        self.manager.status("the first look at all streams")
        return not self._stopped

    def report(self, rows: list[Progress]) -> None:
        """Take what the agent's loop has come to.

        Raises:
            OSError: stderr cannot be written; all else is done.
        """
        totals = Totals.of(rows)
        failing = f", {totals.failing} failing" if totals.failing else ""
        self._turn(f"{totals}{failing}", rows)
        self.progress.show(rows, self.warnings())

    def _turn(self, status: str, rows: list[Progress]) -> None:
        """The loop has gone round once."""
        for listener in self.listeners:
            listener(rows)
        if self._reload:
            self._reload = False
            self._read_again()
        if not self._ready:
            self._ready = True
            self.manager.ready()
        self.manager.alive()
        self.manager.status(status)

    def warnings(self) -> list[str]:
        """Those of the agent, and which streams wait for their names."""
        steering = self.worker.steering
        warnings = [*self.worker.warnings]
        if steering.undecided or steering.left:
            warnings = [each for each in warnings if each != nothing_found(self.worker.data_dir)]
        options = self.setup.options
        if steering.undecided and (options.committed != "broker" or options.once):
            warnings.append(
                "[[streams]] asks for names, and nobody says what these directories are called, so"
                " nothing of them is uploaded: name them by --names, or use --committed broker"
                f" ({listed(steering.undecided, _SHOWN)})"
            )
        return warnings

    def _read_again(self) -> None:
        """Take over what of the file can be taken over; a broken one changes nothing."""
        path = self.setup.file.path
        if path is None:
            return
        self.manager.reloading()
        try:
            found = reloaded(self.setup, read_file(path))
            settings = found.setup.options.settings(found.setup.where.bucket)
            self.worker.steering.change(settings, found.setup.file.selection())
        except InvalidInputError as exc:
            refused = InvalidInputError(f"the old settings stay: {exc.reason}")
            self.log.error(refused.located(stream=exc.stream, key=exc.key or str(path)), "reload")
        else:
            self.setup = found.setup
            self.worker.steer()
            self.log.info("reload", str(found))
        finally:
            self.manager.ready()


def _is_to_come(data_dir: Path) -> bool:
    try:
        return not data_dir.exists() and data_dir.parent.is_dir()
    except OSError:
        return False  # the first look says why
