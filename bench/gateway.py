"""A raw reader of chunks through the gateway, from S3: against plain range GETs, and a broker.

The same 1.2 GB of 1 KB messages. Plain: every byte of the objects in ranges by obstore, several at
once. The gateway and the broker are processes of their own; the reader counts the bytes of frames
and looks at none, gives credit back as clients do, and is the same for both. What the gateway reads
lies wholly in S3. Where rabbitmq-server is not installed, there is no broker to compare with.

On a machine of few processors S3 server, gateway and reader take turns, so both ratios have a bound
there: that of a relay (`bench.relay`) which only GETs and sends.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.read import RANGE, plain
from bench.relay import Range, relay, signed
from bench.report import megabytes_per_second, quick, ratio
from bench.site import LONG, MESSAGE_SIZE, context, site, stream, tier
from coldstream import deployment
from coldstream.broker.frames import Key, OffsetType, binary, frame, string, subscribe
from coldstream.remote.roots import load
from coldstream_devkit.broker import BrokerNode, free_ports
from coldstream_devkit.broker_release import SYSTEM
from coldstream_devkit.stream_client import StreamClient

ROUNDS = 5
STREAM = "__bench_gateway"
_CREDIT, _BLOCK = 50, 2**20
_START_SECONDS = 60.0


class RawReader:
    """Reads frames as fast as they come.

    Args:
        port: of a gateway or a broker on loopback.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._kept = memoryview(bytearray(_BLOCK))

    def log_in(self) -> None:
        """Open the virtual host /."""
        correlation = struct.pack(">I", 1)
        for key, body in (
            (Key.PEER_PROPERTIES, struct.pack(">i", 0)),
            (Key.SASL_HANDSHAKE, b""),
            (Key.SASL_AUTHENTICATE, string("PLAIN") + binary(b"\0guest\0guest")),
        ):
            self._send(key, correlation + body)
            self._frame()
        self._frame()
        self._send(Key.TUNE, struct.pack(">II", 2**20, 0))
        self._send(Key.OPEN, correlation + string("/"))
        self._frame()

    def read(self, name: str, size: int) -> float:
        """Seconds until so many bytes of chunks have come from the first one on."""
        began = time.perf_counter()
        body = subscribe(1, name, OffsetType.FIRST, credit=_CREDIT)
        self._send(Key.SUBSCRIBE, struct.pack(">I", 2) + body)
        taken = 0
        while taken < size:
            key, length = self._frame()
            if key == Key.DELIVER:
                taken += length - 5
                self._send(Key.CREDIT, struct.pack(">BH", 1, 1))
        return time.perf_counter() - began

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _send(self, key: int, body: bytes) -> None:
        self._socket.sendall(frame(key, body))

    def _frame(self) -> tuple[int, int]:
        """Key and size of the next frame, which is read and forgotten."""
        size = struct.unpack(">I", self._exactly(4))[0]
        key = struct.unpack(">H", self._exactly(2))[0]
        left = size - 2
        while left:
            left -= self._into(min(left, _BLOCK))
        return key, size

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            count = self._into(size - len(data))
            data += bytes(self._kept[:count])
        return data

    def _into(self, most: int) -> int:
        count = self._socket.recv_into(self._kept, most)
        if not count:
            raise ConnectionError("hung up")
        return count


@contextmanager
def gateway(work: Path) -> Iterator[int]:
    """A gateway as it is run; gives its port."""
    users = work / "users"
    users.write_text("guest:guest:.*\n")
    (port,) = free_ports(1)
    command = Path(sys.executable).with_name("coldstream")
    process = subprocess.Popen(
        [command, "gateway", "run", "--port", str(port), "--users", users],
        stderr=subprocess.PIPE,
    )
    try:
        _wait_for(port)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@contextmanager
def broker(messages: int) -> Iterator[tuple[int, str, int] | None]:
    """A broker with as many messages: its port, the stream, and bytes of its chunks."""
    if not SYSTEM.installed():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as made:
        Path(made).chmod(0o755)
        node = BrokerNode(Path(made) / "node")
        try:
            node.start()
            yield node.ports.stream, "bench", _publish(node, messages)
        finally:
            node.stop()


def _publish(node: BrokerNode, messages: int) -> int:
    body = b"x" * MESSAGE_SIZE
    with closing(StreamClient(node.ports.stream, seconds=60)) as client:
        client.create("bench", {})
        client.declare("bench")
        left = 0
        for first in range(0, messages, 256):
            count = min(256, messages - first)
            client.publish([(first + n, body) for n in range(count)])
            left += count
            while left > 20_000:
                left -= len(client.confirmed(60))
        while left:
            left -= len(client.confirmed(60))
    return messages * (MESSAGE_SIZE + 4)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nobody listens at port {port}")


def logged_in(port: int) -> RawReader:
    """A reader that may subscribe."""
    reader = RawReader(port)
    reader.log_in()
    return reader


def through(port: int, name: str, size: int, *, relayed: bool = False) -> float:
    """Seconds of one read; a relay knows nobody, and takes whatever is said for a subscription."""
    with closing(RawReader(port)) as reader:
        if not relayed:
            reader.log_in()
        return reader.read(name, size)


def ranges(keys: list[tuple[str, int]]) -> list[Range]:
    """The same ranges as of `plain`, for a relay."""
    bucket = f"{os.environ['AWS_ENDPOINT_URL']}/{os.environ[deployment.ENV_BUCKET]}"
    return [
        each
        for key, size in keys
        for each in signed(
            f"{bucket}/{key}", ((at, min(at + RANGE, size)) for at in range(0, size, RANGE))
        )
    ]


def main() -> None:
    share, rounds = (20, 1) if quick(__doc__) else (1, ROUNDS)
    messages = LONG // share
    seconds: dict[str, list[float]] = {"plain": [], "gateway": [], "relay": [], "broker": []}
    with site() as work, broker(messages) as beside:
        stream(work / "data", STREAM, messages=messages)
        there = context()
        tier(there, work / "data")
        root = load(context(), STREAM).root
        keys = [(e.data_key(STREAM).path(there.prefix), e.size) for e in root.entries]
        size = messages * (MESSAGE_SIZE + 4)
        with gateway(work) as port, relay(ranges(keys)) as relayed:
            for _ in range(rounds):
                seconds["plain"].append(plain(keys, 4))
                seconds["gateway"].append(through(port, STREAM, size))
                seconds["relay"].append(through(relayed, STREAM, size, relayed=True))
                if beside is not None:
                    seconds["broker"].append(through(*beside))
    print(f"{size / 1e6:.0f} MB of messages, {rounds} rounds in turn, median (range)")
    print(f"  plain range GETs of {RANGE >> 20} MiB, 4 at once")
    for name, each in seconds.items():
        if each:
            print(f"  {name:8} {megabytes_per_second(size, each)}")
    ours, least = (statistics.median(seconds[each]) for each in ("gateway", "relay"))
    bounds = {
        name: statistics.median(seconds[name]) / least
        for name in ("plain", "broker")
        if seconds[name]
    }
    print("  the relay is at " + ", ".join(f"{bounds[name]:.3f} of {name}" for name in bounds))
    ratio("gateway_to_gets", statistics.median(seconds["plain"]) / ours, ">= 0.8")
    if seconds["broker"]:
        ratio("gateway_to_broker", statistics.median(seconds["broker"]) / ours, ">= 0.8")


if __name__ == "__main__":
    main()
