"""The gateway as a process of its own, over a tier in memory: what it does when it is signalled."""

from __future__ import annotations

import os
import signal
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.broker.frames import Key
from tests.support.certificate import certificate
from tests.support.probe_stack import eventually
from tests.support.raw_client import RawClient

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, signal, sys
sys.argv = ["coldstream", *sys.argv[1:]]
from tests.support.tier import Tier, PREFIX
from coldstream.adapters.memory import MemoryPolicies
from coldstream.cli import options
from coldstream.adapters.place import Place, Remote
from coldstream.cli.main import main
tier = Tier()
remote = Remote(tier.store, tier.catalog, MemoryPolicies(), Place("b", "t", PREFIX))

def connect(**_):
    if "HANGS_UP" in os.environ:
        os.kill(os.getpid(), signal.SIGHUP)
    return remote

options.connect = connect
main()
"""


@dataclass
class Running:
    """A gateway that runs.

    Attributes:
        process: of it.
        said: lines of its log.
    """

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    def has_said(self, words: str) -> bool:
        return any(words in each for each in self.said)

    @property
    def port(self) -> int:
        (line,) = (each for each in self.said if "listening at" in each)
        return int(line.rsplit(":", 1)[1])


@contextmanager
def running(*options: str | Path, **variables: str) -> Iterator[Running]:
    """`coldstream gateway run` with these options, once it listens; killed at the end."""
    path = f"{ROOT}:{ROOT / 'src'}:{ROOT / 'devkit/src'}"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "gateway", "run", "--port", "0", *map(str, options)],
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, **variables, "PYTHONPATH": path},
    ) as process:  # fmt: skip
        made = Running(process)
        assert process.stderr is not None
        log = process.stderr
        reading = threading.Thread(target=lambda: made.said.extend(iter(log.readline, "")))
        reading.start()
        try:
            assert eventually(lambda: made.has_said("listening at"), seconds=60), made.said
            yield made
        finally:
            process.kill()
            process.wait(60)
            reading.join(60)


def shakes_hands(port: int, trusted: str, *, names: bool = True) -> bool:
    """Whether a client that trusts only this certificate gets through, with or without SNI."""
    context = ssl.create_default_context(cadata=trusted)
    context.check_hostname = names
    try:
        with RawClient(port) as client:
            name = "localhost" if names else None
            client.socket = context.wrap_socket(client.socket, server_hostname=name)
            client.log_in("app", "secret")
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_a_renewed_certificate_is_shown_after_sighup_and_nobody_is_hung_up_on(
    tmp_path: Path,
) -> None:
    """A new one needed a restart, which hangs up on every client."""
    made, key, users = tmp_path / "gateway.pem", tmp_path / "gateway.key", tmp_path / "users"
    users.write_text("app:secret:.*\n")
    old = certificate(made, key)
    with (
        running("--users", users, "--tls-cert", made, "--tls-key", key) as gateway,
        ExitStack() as ends,
    ):
        port, process = gateway.port, gateway.process
        trusting = ssl.create_default_context(cadata=old)
        stays = ends.enter_context(RawClient(port, tls=trusting)).log_in("app", "secret")
        new = certificate(made, key)
        assert shakes_hands(port, old)
        assert not shakes_hands(port, new)

        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: gateway.has_said("certificate and key were read"), seconds=60)
        for names in (True, False):
            assert shakes_hands(port, new, names=names)
            assert not shakes_hands(port, old, names=names)

        made.write_text("none")
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: gateway.has_said("the old certificate stays"), seconds=60)
        assert shakes_hands(port, new)
        assert stays.request(Key.METADATA, struct.pack(">i", 0))


def test_sighup_does_not_end_a_gateway_that_asks_the_broker_for_its_users() -> None:
    """The signal had no handler then, and `systemctl reload` ended it."""
    with running("--management-uri", "http://127.0.0.1:1") as gateway:
        gateway.process.send_signal(signal.SIGHUP)
        with RawClient(gateway.port) as client:
            assert client.authenticate("app", "secret") != 1
        assert gateway.process.poll() is None


def test_sighup_while_a_gateway_starts_ends_it_not_and_is_heeded_once_it_can_be(
    tmp_path: Path,
) -> None:
    users = tmp_path / "users"
    users.write_text("app:secret:.*\n")
    with running("--users", users, HANGS_UP="1") as gateway:
        assert eventually(lambda: gateway.has_said("was read"), seconds=60), gateway.said
        assert gateway.process.poll() is None
