"""Real RabbitMQ nodes, of any release, on free ports of 127.0.0.1.

Everything of a node lies in one directory, and it listens on 127.0.0.1 only. As root it runs as the
user of the package, as its unit does; else as whoever runs this.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coldstream_devkit.broker_release import SYSTEM, Release
from coldstream_devkit.wrong_clock import WrongClock

_PLUGINS = "[rabbitmq_management,rabbitmq_stream,rabbitmq_stream_management].\n"
_START_SECONDS = 300.0
_CONTROL_SECONDS = 180.0
_END_SECONDS = 60.0
#: Below those that systems give to connections: a node that was killed needs its own again.
_PORTS = range(12_000, 32_000)
#: The group that elects leaders takes in one node a tick, of half a minute by default.
_ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} -rabbit stream_tick_interval 2000"


class BrokerError(RuntimeError):
    """A node did not do what it was told."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now, and that no connection is given by chance.

    Raises:
        BrokerError: there are not so many.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, 1000):
        if len(found) == count:
            return found
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    raise BrokerError(f"there are no {count} free ports")


@dataclass(slots=True)
class Ports:
    """Where a node listens."""

    amqp: int
    stream: int
    management: int
    distribution: int
    epmd: int
    stream_tls: int
    management_tls: int

    @classmethod
    def free(cls) -> Ports:
        """Seven free ones."""
        return cls(*free_ports(7))


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a node shows to clients that speak TLS; files in PEM.

    Attributes:
        authority: who has signed it.
        certificate: of the node.
        key: of the certificate.
        host: name that the node advertises to such clients.
    """

    authority: Path
    certificate: Path
    key: Path
    host: str = "localhost"


@dataclass(slots=True)
class BrokerNode:
    """One node.

    Args:
        base: directory of its own; must not be there yet.
        name: of the node, before the @.
        ports: where it listens.
        cookie: of its cluster.
        release: that it runs.
        tls: listeners for TLS as well, with this certificate.
        clock: how wrong its clock is from the next start on; None if it is right.
    """

    base: Path
    name: str = "n0"
    ports: Ports = field(default_factory=Ports.free)
    cookie: str = "COLDSTREAM"
    release: Release = SYSTEM
    tls: Certificate | None = None
    clock: WrongClock | None = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """The directory that holds one directory a stream."""
        return self.base / "mnesia" / f"{self.name}@localhost" / "stream"

    @property
    def stream_uri(self) -> str:
        """As the agent wants it."""
        return f"rabbitmq-stream://guest:guest@127.0.0.1:{self.ports.stream}"

    @property
    def management_uri(self) -> str:
        """As the agent wants it."""
        return f"http://guest:guest@127.0.0.1:{self.ports.management}"

    def prepare(self) -> None:
        """Write its configuration."""
        for each in (self.base, self.base / "log", self.base / "mnesia"):
            each.mkdir(parents=True)
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.ports.amqp}",
            f"stream.listeners.tcp.1 = 127.0.0.1:{self.ports.stream}",
            # 3.10 says this one to clients with TLS as well, whatever is said for them.
            f"stream.advertised_host = {self.tls.host if self.tls else '127.0.0.1'}",
            f"stream.advertised_port = {self.ports.stream}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.ports.management}",
            "log.file.level = info",
            "vm_memory_high_watermark.absolute = 2GB",
            "disk_free_limit.absolute = 200MB",
            "loopback_users = none",
            *self._tls_lines(),
        ]
        (self.base / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.base / "enabled_plugins").write_text(_PLUGINS)
        cookie = self.base / ".erlang.cookie"
        cookie.write_text(self.cookie)
        cookie.chmod(0o400)
        self._own()

    def _tls_lines(self) -> list[str]:
        if self.tls is None:
            return []
        inside = self.release.inside(self.base)
        files = {
            "cacertfile": self.tls.authority,
            "certfile": self.tls.certificate,
            "keyfile": self.tls.key,
        }
        lines = [
            f"stream.listeners.ssl.1 = 127.0.0.1:{self.ports.stream_tls}",
            f"stream.advertised_tls_host = {self.tls.host}",
            f"stream.advertised_tls_port = {self.ports.stream_tls}",
            "management.ssl.ip = 127.0.0.1",
            f"management.ssl.port = {self.ports.management_tls}",
        ]
        for option, path in files.items():
            shutil.copy(path, self.base / option)
            lines.append(f"ssl_options.{option} = {inside / option}")
            lines.append(f"management.ssl.{option} = {inside / option}")
        return lines

    def _own(self) -> None:
        if os.geteuid() != 0:
            return
        user, group = self.release.owner()
        for path in (self.base, *self.base.rglob("*")):
            os.chown(path, user, group)

    def _environment(self) -> dict[str, str]:
        base = self.release.inside(self.base)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(base),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "RABBITMQ_NODENAME": f"{self.name}@localhost",
            "RABBITMQ_MNESIA_BASE": str(base / "mnesia"),
            "RABBITMQ_LOG_BASE": str(base / "log"),
            "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(base / "pid"),
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        }

    def _command(self, program: str, *arguments: str, clock: WrongClock | None = None) -> list[str]:
        """A command of the release, as its user."""
        path, variables = self.release.program / program, self._environment()
        if clock is not None:
            # A node in a root of its own does not see it elsewhere.
            shutil.copy(clock.library, self.base)
            variables |= clock.variables(self.release.inside(self.base) / clock.library.name)
        return self.release.command(self.base, variables, (path, *arguments))

    def start(self, *, wait: bool = True) -> None:
        """Start it.

        Args:
            wait: until its ports answer; of a cluster that was stopped, nodes may wait for others.

        Raises:
            BrokerError: it does not come up.
        """
        if not self.base.exists():
            self.prepare()
        with (self.base / "log" / "stdout").open("ab") as out:
            self._process = subprocess.Popen(
                self._command("rabbitmq-server", clock=self.clock),
                cwd=self.base,
                env=self._environment(),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until its ports answer.

        Raises:
            BrokerError: it does not come up.
        """
        deadline = time.monotonic() + _START_SECONDS
        for port in (self.ports.stream, self.ports.management):
            while not _answers(port):
                if time.monotonic() > deadline:
                    raise BrokerError(f"no answer at port {port}; see {self.base / 'log'}")
                time.sleep(0.1)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl; what it prints.

        Raises:
            BrokerError: it fails, or a node that hangs does not answer it.
        """
        return self._run("rabbitmqctl", *arguments)

    def streams(self, *arguments: str) -> str:
        """Run rabbitmq-streams; what it prints, and raises, is as of `control`."""
        return self._run("rabbitmq-streams", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        try:
            done = subprocess.run(
                self._command(program, "-q", "-n", f"{self.name}@localhost", *arguments),
                env=self._environment(),
                cwd=self.base,
                capture_output=True,
                text=True,
                check=False,
                timeout=_CONTROL_SECONDS,
            )
        except subprocess.TimeoutExpired as exc:
            raise BrokerError(f"{program} {' '.join(arguments)}: no answer") from exc
        if done.returncode:
            raise BrokerError(f"{program} {' '.join(arguments)}: {done.stderr[-2000:]}")
        return done.stdout

    def flush(self) -> None:
        """Have it write down what it knows of its queues.

        Mnesia collects its log in the memory of the machine: a node that is killed a moment after a
        queue was declared may not know it when it starts again. Khepri of 4.x writes before
        it answers. Ra of any release keeps in a dets table which groups a node has: if that is
        lost, the coordinator of streams never starts again, and no stream of a node alone does. A
        node that does not answer is left as it is.
        """
        with suppress(BrokerError):
            self.control("eval", "catch mnesia:sync_log(), [dets:sync(T) || T <- dets:all()].")

    @property
    def pid(self) -> int:
        """Of the Erlang machine."""
        return int((self.base / "pid").read_text())

    def kill(self) -> None:
        """Kill it as a power cut does; returns when it is gone."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        while _lives(pid):
            time.sleep(0.02)
        (self.base / "pid").unlink(missing_ok=True)  # the number may be another's soon
        if self._process is not None:
            self._process.wait(_END_SECONDS)

    def pause(self) -> None:
        """Stop its machine as a frozen host does; `resume` lets it go on."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End the node and its epmd, whatever state it is in; never raises."""
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # it is down already
            self.kill()
        if self._process is not None and self._process.poll() is None:
            # It has not got as far as to write down its number.
            with suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(_END_SECONDS)
        if not self.base.exists():
            return
        # An epmd that other nodes of a cluster use as well refuses, and ends with the last of them.
        kill = ("epmd", "-port", str(self.ports.epmd), "-kill")
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self.release.command(self.base, self._environment(), kill),
                env=self._environment(),
                capture_output=True,
                check=False,
                timeout=_END_SECONDS,
            )


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
