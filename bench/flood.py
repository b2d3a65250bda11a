"""Publishes to a stream of a real RabbitMQ, at a rate or as fast as it takes, until told to stop.

    python -m bench.flood PORT STREAM SECONDS RATE

prints one JSON object: messages confirmed, seconds, and when so many were confirmed. A message is
one kilobyte. It is published without a name, so that the broker looks for no duplicates, which is
its fastest way; offsets begin at 0, because nobody else publishes. What is measured is the broker,
as far as a client in Python on the same cores lets it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.limits import Limits
from coldstream_devkit.stream_client import StreamClient

MESSAGE_SIZE = 1000
_BATCH = 500
#: Messages that may wait for their confirmation.
_WINDOW = 20_000


@dataclass(frozen=True, slots=True)
class Flood:
    """What came of it.

    Attributes:
        messages: confirmed.
        seconds: from the first to the last confirmation.
        samples: (monotonic seconds, messages confirmed until then), rising.
    """

    messages: int
    seconds: float
    samples: list[tuple[float, int]]

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


def flood(port: int, stream: str, seconds: float, limits: Limits, *, rate: int = 0) -> Flood:
    """Publish in a process of its own.

    Args:
        port: of the broker's streams.
        stream: to make, with nothing in it.
        seconds: for how long.
        limits: of the process.
        rate: messages a second; 0 for as many as the broker takes.

    Raises:
        SystemExit: it failed.
    """
    words = [str(port), stream, str(seconds), str(rate)]
    process = subprocess.Popen(
        limits.command([sys.executable, "-m", "bench.flood", *words]),
        stdout=subprocess.PIPE,
        text=True,
    )
    limits.take(process.pid)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit("publishing failed")
    row: dict[str, Any] = json.loads(out)
    return Flood(row["messages"], row["seconds"], [(at, count) for at, count in row["samples"]])


def _publish(client: StreamClient, seconds: float, rate: int) -> dict[str, Any]:
    body = bytes(MESSAGE_SIZE)
    batch = [
        (number, body) for number in range(min(_BATCH, max(1, rate // 20)) if rate else _BATCH)
    ]
    began = time.monotonic()
    sent = confirmed = 0
    samples: list[tuple[float, int]] = []
    while True:
        now = time.monotonic()
        ended = now - began >= seconds
        may = not ended and sent - confirmed < _WINDOW
        if may and (not rate or sent < (now - began) * rate):
            client.publish(batch)
            sent += len(batch)
            wait = 0.0002 if sent - confirmed > _WINDOW // 2 else 0.0  # 0: nothing is read
        else:
            wait = 0.005
        if found := len(client.confirmed(wait)):
            confirmed += found
            samples.append((time.monotonic(), confirmed))
        if ended and confirmed == sent:
            break
        if ended and time.monotonic() - began > seconds + 60:
            raise SystemExit(f"{sent - confirmed} messages are not confirmed")
    thinned = samples[:: max(1, len(samples) // 5000)]
    return {
        "messages": confirmed,
        "seconds": samples[-1][0] - began,
        "samples": [*thinned, samples[-1]],
    }


def main() -> None:
    port, stream, seconds, rate = sys.argv[1:]
    client = StreamClient(int(port), seconds=30)
    client.create(stream, {"max-length-bytes": "3000000000"})
    client.declare(stream)
    print(json.dumps(_publish(client, float(seconds), int(rate))))
    client.close()


if __name__ == "__main__":
    main()
