"""The least that a gateway can do: GET ranges, and send what came. Nothing is checked or copied.

    python -m bench.relay < JOB     prints its port; each client that says something gets all bytes

It shows how fast a gateway can be on a machine whose processors it shares with the S3 server and
the client. The GETs are plain HTTP, signed beforehand, each read straight into memory that is used
again and again (a library for S3 copies at least once more); what is sent are frames of one range.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import local
from typing import NamedTuple
from urllib.parse import urlsplit

from coldstream.broker.frames import Key

_PARALLEL = 4
#: Ranges under way, or that have come and wait to be sent.
_BUFFERS = 8
_END_OF_HEAD = b"\r\n\r\n"


class Range(NamedTuple):
    """Bytes `start` to `end` of what a URL gives to a request with signed headers."""

    url: str
    headers: dict[str, str]
    start: int
    end: int


def signed(url: str, sizes: Iterator[tuple[int, int]]) -> list[Range]:
    """Ranges of an object, with the environment's keys; signatures hold for 15 minutes."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    request = AWSRequest("GET", url)
    S3SigV4Auth(keys, "s3", os.environ["AWS_REGION"]).add_auth(request)
    return [Range(url, dict(request.headers.items()), start, end) for start, end in sizes]


class _Gets:
    """GETs over connections that stay, one a thread."""

    def __init__(self) -> None:
        self._mine = local()

    def into(self, wanted: Range, memory: memoryview) -> memoryview:
        """The bytes, in memory that is large enough."""
        place = urlsplit(wanted.url)
        wire = self._connected(place.hostname or "", place.port or 80)
        lines = [f"GET {place.path} HTTP/1.1", f"Host: {place.netloc}"]
        lines += [f"{name}: {value}" for name, value in wanted.headers.items()]
        lines += [f"Range: bytes={wanted.start}-{wanted.end - 1}", "", ""]
        wire.sendall("\r\n".join(lines).encode())
        head = b""
        while _END_OF_HEAD not in head:
            head += _some(wire.recv(2**14))
        head, _, begun = head.partition(_END_OF_HEAD)
        if b" 206 " not in head.split(b"\r\n", 1)[0]:
            raise ConnectionError(head.decode(errors="replace"))
        size = wanted.end - wanted.start
        memory[: len(begun)] = begun
        at = len(begun)
        while at < size:
            count = wire.recv_into(memory[at:size])
            if not count:
                raise ConnectionError("S3 hung up")
            at += count
        return memory[:size]

    def _connected(self, host: str, port: int) -> socket.socket:
        if not hasattr(self._mine, "wire"):
            self._mine.wire = socket.create_connection((host, port), timeout=60)
        found: socket.socket = self._mine.wire
        return found


def _some(data: bytes) -> bytes:
    if not data:
        raise ConnectionError("hung up")
    return data


def send_all(
    client: socket.socket,
    ranges: list[Range],
    gets: _Gets,
    pool: ThreadPoolExecutor,
    free: SimpleQueue[memoryview],
) -> None:
    """Every range as one frame, in order, fetched ahead into free memory.

    Raises:
        ConnectionError: the client hung up; all memory is free again.
    """
    under_way: list[tuple[Future[memoryview], memoryview]] = []
    plan = iter(ranges)

    def start() -> None:
        wanted = next(plan, None)
        if wanted is not None:
            memory = free.get()
            under_way.append((pool.submit(gets.into, wanted, memory), memory))

    try:
        for _ in range(_BUFFERS):
            start()
        while under_way:
            coming, memory = under_way[0]
            data = coming.result()
            client.sendall(struct.pack(">IHHB", 5 + len(data), Key.DELIVER, 1, 1))
            client.sendall(data)
            del under_way[0]
            free.put(memory)
            start()
    finally:
        wait([coming for coming, _ in under_way])
        for _, memory in under_way:
            free.put(memory)


def main() -> None:
    """Serve one client after the other, until the last one is killed."""
    ranges = [Range(*each) for each in json.load(sys.stdin)]
    gets = _Gets()
    room = max(each.end - each.start for each in ranges)
    free: SimpleQueue[memoryview] = SimpleQueue()
    for _ in range(_BUFFERS):
        free.put(memoryview(bytearray(room)))
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        ThreadPoolExecutor(_PARALLEL) as pool,
    ):
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            # A client that has had its bytes hangs up, while what lies behind them is on its way.
            with closing(client), suppress(ConnectionError):
                client.recv(1)
                send_all(client, ranges, gets, pool, free)
                while client.recv(2**14):
                    pass  # its credits, until it hangs up


@contextmanager
def relay(ranges: list[Range]) -> Iterator[int]:
    """A relay in a process of its own; gives its port."""
    process = Popen([sys.executable, "-m", "bench.relay"], stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin:
            process.stdin.write(json.dumps(ranges).encode())
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait(30)
        process.stdout.close()


if __name__ == "__main__":
    main()
