"""Real RabbitMQ nodes, from the system's package, on free ports of 127.0.0.1.

Everything of a node lies in one directory, and it listens on 127.0.0.1 only. As root it runs as the
user of the package, as its unit does; else as whoever runs this.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_BIN = Path("/usr/lib/rabbitmq/bin")
_USER = "rabbitmq"
_PLUGINS = "[rabbitmq_management,rabbitmq_stream,rabbitmq_stream_management].\n"
_START_SECONDS = 120.0


class BrokerError(RuntimeError):
    """A node did not do what it was told."""


def installed() -> bool:
    """Whether the package is there."""
    return (_BIN / "rabbitmq-server").exists()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass(slots=True)
class Ports:
    """Where a node listens."""

    amqp: int
    stream: int
    management: int
    distribution: int
    epmd: int

    @classmethod
    def free(cls) -> Ports:
        """Five free ones."""
        return cls(*free_ports(5))


@dataclass(slots=True)
class BrokerNode:
    """One node.

    Args:
        base: directory of its own; must not be there yet.
        name: of the node, before the @.
        ports: where it listens.
        cookie: of its cluster.
    """

    base: Path
    name: str = "n0"
    ports: Ports = field(default_factory=Ports.free)
    cookie: str = "COLDSTREAM"
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
            "stream.advertised_host = 127.0.0.1",
            f"stream.advertised_port = {self.ports.stream}",
            "management.tcp.ip = 127.0.0.1",
            f"management.tcp.port = {self.ports.management}",
            "log.file.level = info",
            "vm_memory_high_watermark.absolute = 2GB",
            "disk_free_limit.absolute = 200MB",
            "loopback_users = none",
        ]
        (self.base / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.base / "enabled_plugins").write_text(_PLUGINS)
        cookie = self.base / ".erlang.cookie"
        cookie.write_text(self.cookie)
        cookie.chmod(0o400)
        self._own()

    def _own(self) -> None:
        if os.geteuid() != 0:
            return
        for path in (self.base, *self.base.rglob("*")):
            shutil.chown(path, _USER, _USER)

    def _environment(self) -> dict[str, str]:
        base = self.base
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _command(self, *arguments: str) -> Sequence[str]:
        """A command of the package, as its user."""
        if os.geteuid() != 0:
            return arguments
        pairs = [f"{name}={value}" for name, value in self._environment().items()]
        return ["runuser", "-u", _USER, "--", "env", "-i", *pairs, *arguments]

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
                self._command(str(_BIN / "rabbitmq-server")),
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
            BrokerError: it fails.
        """
        command = (str(_BIN / "rabbitmqctl"), "-q", "-n", f"{self.name}@localhost", *arguments)
        done = subprocess.run(
            self._command(*command),
            env=self._environment(),
            cwd=self.base,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr[-2000:]}")
        return done.stdout

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
        if self._process is not None:
            self._process.wait(10)

    def stop(self) -> None:
        """End the node and its epmd, whatever state it is in."""
        with suppress(OSError, ValueError):  # it is down already
            self.kill()
        epmd = shutil.which("epmd")
        if epmd is not None:
            subprocess.run(
                self._command(epmd, "-port", str(self.ports.epmd), "-kill"),
                env=self._environment(),
                capture_output=True,
                check=False,
            )


@dataclass(slots=True)
class Cluster:
    """Three nodes that have joined each other.

    Attributes:
        nodes: the founder is the first.
    """

    nodes: list[BrokerNode]

    @classmethod
    def start(cls, base: Path) -> Cluster:
        """Start three nodes below `base`, and have them join.

        Raises:
            BrokerError: they do not come together.
        """
        epmd = free_ports(1)[0]
        nodes = []
        for number in range(3):
            ports = Ports.free()
            ports.epmd = epmd
            nodes.append(BrokerNode(base / f"n{number}", f"n{number}", ports))
        cluster = cls(nodes)
        try:
            for node in nodes:
                node.start()
            for node in nodes[1:]:
                for words in (("stop_app",), ("join_cluster", "n0@localhost"), ("start_app",)):
                    node.control(*words)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def wait_for_coordinator(self) -> None:
        """Wait until every node is a member of the group that elects leaders of streams.

        There must have been a stream. It takes nodes in one after the other, every half a minute.

        Raises:
            BrokerError: they are not in it after five minutes.
        """
        ask = "element(2, ra:members({rabbit_stream_coordinator, node()}))."
        deadline = time.monotonic() + 300
        while True:
            found = self.nodes[0].control("eval", ask)
            if all(f"{node.name}@localhost" in found for node in self.nodes):
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"the coordinator has {found}")
            time.sleep(1)

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()


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
