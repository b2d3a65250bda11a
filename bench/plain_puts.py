"""PUTs the same bytes again and again, at a rate, until it is killed.

    python -m bench.plain_puts BYTES_PER_SECOND

Nothing is read, checked or asked for: what these PUTs take from the broker, every uploader takes on
a machine that has the other end of the connection, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import obstore

from bench.cloud import BUCKET
from bench.limits import Limits
from coldstream.adapters.s3 import open_store
from coldstream.agent.settings import AgentSettings


@contextmanager
def plain_puts(rate: float, environment: Mapping[str, str], limits: Limits) -> Iterator[None]:
    """Have a process PUT while the context lasts.

    Args:
        rate: bytes a second.
        environment: where S3 is.
        limits: of the process.
    """
    words = [sys.executable, "-m", "bench.plain_puts", str(rate)]
    process = subprocess.Popen(limits.command(words), env={**os.environ, **environment})
    limits.take(process.pid)
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"plain PUTs ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()


def main() -> None:
    rate, data = float(sys.argv[1]), os.urandom(AgentSettings().target_size)
    store, began, sent = open_store(BUCKET), time.monotonic(), 0
    while True:
        key = f"plain/{os.getpid()}-{sent}"
        obstore.put(store, key, data, mode="create", use_multipart=False)
        sent += len(data)
        time.sleep(max(0.0, began + sent / rate - time.monotonic()))


if __name__ == "__main__":
    main()
