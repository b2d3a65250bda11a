"""A stand-in for what the agent asks of AWS: S3, DynamoDB, Lambda, as far as the agent asks it.

It is a process of its own (`python -m bench.cloud`), and not the embedded AWS, which is too slow to
measure an agent with. Claims and commits are the product's own code (`usecases`) on ports in
memory; what stands in is the transport (`cloud_http`), the durability and the billing. Of large
objects only the end is kept, which is all that a commit reads. Events do not exist: a fragment is
committed once the queue's batch window is over, as the commit function of the stack would do.

Nothing here is on the broker's machine in reality, so benchmarks give it what CPU time is left.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from http.client import HTTPConnection, HTTPSConnection
from itertools import islice
from pathlib import Path
from typing import Any

from bench.limits import Limits
from coldstream import deployment, names
from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError, CorruptDataError
from coldstream.fragment import Buffer
from coldstream.ports import ObjectInfo
from coldstream.remote.context import Context
from coldstream.usecases.claim_function import answer
from coldstream.usecases.commit_runs import commit_runs

BUCKET, TABLE, PREFIX = "bench", "bench", names.DEFAULT_PREFIX
FUNCTION = "bench-claim"
#: The ciphers of TLS 1.3 as AWS's own servers prefer them: the server policies of s2n-tls have
#: AES-128 first (tls/s2n_cipher_preferences.c), OpenSSL's own order has AES-256 first.
_SERVER_ORDER = """openssl_conf = all
[all]
ssl_conf = servers
[servers]
system_default = tls
[tls]
Ciphersuites = TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256
Options = ServerPreference
"""
#: The stack's default for how long events are gathered before a commit, seconds.
WINDOW_SECONDS = 2.0
_KEPT = 4 * 2**20
#: The link is late by up to this, seconds, so that nobody is woken for every few kilobytes.
_LUMP = 0.01


class EndsOnly(MemoryObjectStore):
    """Objects in memory, of large ones only the last 4 MiB."""

    def __init__(self) -> None:
        super().__init__(lambda: time.time_ns() // 1_000_000)
        self.sizes: dict[str, int] = {}
        self._in: dict[str, list[str]] = {}  # keys by folder, sorted: to list must not cost by all

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        there = key in self.objects
        super().put(key, body, write_id=write_id, crc=crc)
        if not there:
            insort(self._in.setdefault(key.rpartition("/")[0] + "/", []), key)

    def put_end(self, key: str, size: int, end: bytes, write_id: str) -> None:
        """Take an object of which only the end is there."""
        self.put(key, end, write_id=write_id)
        self.sizes[key] = size

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        folder = prefix.rpartition("/")[0] + "/"
        keys = [*self._in.get(folder, ())]  # nothing that is asked here lists more than a folder
        at = bisect_right(keys, start_after)
        found = (key for key in keys[at:] if key.startswith(prefix))
        return [ObjectInfo(key, self.size_of(key), 0) for key in islice(found, limit)]

    def written_by(self, key: str) -> str:
        """The write id of an object."""
        return self._written[key][0]

    def get(self, key: str, start: int, end: int) -> Buffer:
        cut = self.sizes.get(key, 0)
        if not cut:
            return super().get(key, start, end)
        kept = self._object(key)
        begin = cut - len(kept)
        if start < begin or end > cut:
            raise CorruptDataError(f"bytes {start}-{end} of {cut} were not kept", key=key)
        return kept[start - begin : end - begin]

    def size_of(self, key: str) -> int:
        """Bytes of an object as it was sent."""
        return self.sizes.get(key) or len(self._object(key))


@dataclass(slots=True)
class Link:
    """A link of so many bytes a second, shared by all who send; 0 for no limit."""

    rate: float = 0.0
    _free_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int) -> None:
        """Wait until so many bytes have gone through."""
        if not self.rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self.rate
            wait = self._free_at - now
        if wait > _LUMP:
            time.sleep(wait)


class Cloud:
    """What is stored, and when it came.

    Args:
        window: seconds from a fragment's PUT to its commit.
        link: that all bodies come through.
    """

    def __init__(self, window: float, link: Link) -> None:
        self.store, self.catalog, self.link = EndsOnly(), MemoryCatalog(), link
        self.context = Context(self.store, self.catalog, PREFIX, lambda: secrets.randbits(64))
        self.puts: deque[tuple[float, str, int]] = deque()
        self.commits: deque[tuple[float, str, int]] = deque()
        self.asked: deque[tuple[float, str, int]] = deque()
        self.requests: dict[str, int] = {}
        self._window = window
        self._due: list[tuple[float, str]] = []
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        threading.Thread(target=self._commit_all, daemon=True).start()

    def landed(self, key: str, size: int) -> None:
        """An object of an agent is there: its fragment is committed soon."""
        now = time.monotonic()
        self.puts.append((now, key, size))
        found = names.parse_data_key(key, PREFIX) if key.endswith(names.FRAGMENT_SUFFIX) else None
        if found is None:
            return
        with self._changed:
            if found.stream not in self._waiting:
                self._waiting.add(found.stream)
                heappush(self._due, (now + self._window, found.stream))
                self._changed.notify()

    def invoke(self, request: bytes) -> bytes:
        """The function `claim`."""
        began = time.monotonic()
        done = answer(
            self.context,
            json.loads(request),
            pause=lambda attempt: None,
            now_ms=time.time_ns() // 1_000_000,
        )
        self.asked.append((began, done.stream, len(request)))
        if done.report is not None:
            self.commits.append((time.monotonic(), done.stream, done.report.next_offset))
        return json.dumps(done.row).encode()

    def _commit_all(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    left = self._due[0][0] - time.monotonic() if self._due else None
                    self._changed.wait(left)
                stream = heappop(self._due)[1]
                self._waiting.discard(stream)
            try:
                report = commit_runs(self.context, stream, pause=lambda attempt: None)
            except ColdstreamError as exc:
                print(f"a commit of {stream}: {exc}", file=sys.stderr, flush=True)
                continue
            self.commits.append((time.monotonic(), stream, report.next_offset))

    def taken(self) -> dict[str, Any]:
        """All that came since it was last asked."""

        def drained(rows: deque[Any]) -> list[Any]:
            return [rows.popleft() for _ in range(len(rows))]

        counted, self.requests = self.requests, {}
        return {
            "puts": drained(self.puts),
            "commits": drained(self.commits),
            "asked": drained(self.asked),
            "requests": counted,
        }


@dataclass(frozen=True, slots=True)
class There:
    """A cloud that runs.

    Attributes:
        port: on localhost.
        authority: certificate that signs for it; None without TLS.
    """

    port: int
    authority: Path | None

    @property
    def environment(self) -> dict[str, str]:
        """With which every SDK finds it."""
        found = {
            "AWS_ENDPOINT_URL": f"{'https' if self.authority else 'http'}://localhost:{self.port}",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            deployment.ENV_BUCKET: BUCKET,
            deployment.ENV_TABLE: TABLE,
            deployment.ENV_PREFIX: PREFIX,
            deployment.ENV_CLAIM_FUNCTION: FUNCTION,
        }
        if self.authority:
            found |= {name: str(self.authority) for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE")}
        return found

    def taken(self) -> dict[str, Any]:
        """What came since it was last asked: rows of monotonic seconds and

        `puts`: key, bytes; `commits`: stream, where its manifest ends; `asked`, of the function:
        stream, bytes of the request. And `requests`, how many of each kind.
        """
        return dict(json.loads(self._ask("/-/taken")))

    def link(self, rate: float) -> None:
        """Let bodies come at so many bytes a second from now on; 0 for no limit."""
        self._ask(f"/-/link/{rate}")

    def _ask(self, path: str) -> bytes:
        trust = ssl.create_default_context(cafile=str(self.authority)) if self.authority else None
        made = (
            HTTPSConnection("localhost", self.port, context=trust, timeout=60)
            if trust
            else HTTPConnection("localhost", self.port, timeout=60)
        )
        try:
            made.request("GET", path)
            return made.getresponse().read()
        finally:
            made.close()


@contextmanager
def cloud(work: Path, limits: Limits, *, tls: bool = True) -> Iterator[There]:
    """Run one in a process of its own.

    Args:
        work: directory for its certificate.
        limits: of its CPU time.
        tls: whether it speaks TLS.

    Raises:
        SystemExit: it does not come up.
    """
    authority, certificate, key = (work / f"cloud{each}" for each in (".pem", ".crt", ".key"))
    if tls:
        _certify(authority, certificate, key)
    arguments = [sys.executable, "-m", "bench.cloud"]
    arguments += ["--certificate", str(certificate), "--key", str(key)] if tls else []
    order = work / "cloud.cnf"
    order.write_text(_SERVER_ORDER)
    environment = os.environ | {"OPENSSL_CONF": str(order)}
    process = subprocess.Popen(
        limits.command(arguments), stdout=subprocess.PIPE, text=True, env=environment
    )
    limits.take(process.pid)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the stand-in for AWS did not come up")
        yield There(int(line), authority if tls else None)
    finally:
        process.send_signal(signal.SIGKILL)  # it has nothing to keep
        process.wait()


def _certify(authority: Path, certificate: Path, key: Path) -> None:
    """A certificate for the name localhost, and who has signed it."""
    signing, request, names_of = (key.with_suffix(each) for each in (".ca", ".csr", ".names"))
    names_of.write_text("subjectAltName=DNS:localhost\n")
    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    for words in (
        ("req", "-x509", *new, "-subj", "/CN=bench", "-addext", "basicConstraints=critical,CA:TRUE",
         "-keyout", signing, "-out", authority),
        ("req", *new[:3], "-subj", "/CN=localhost", "-keyout", key, "-out", request),
        ("x509", "-req", "-days", "2", "-in", request, "-CA", authority, "-CAkey", signing,
         "-CAcreateserial", "-extfile", names_of, "-out", certificate),
    ):  # fmt: skip
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def main() -> None:
    """Serve until killed; the first line on stdout is the port."""
    from bench.cloud_http import serve

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--certificate", default="")
    options.add_argument("--key", default="")
    options.add_argument("--window", type=float, default=WINDOW_SECONDS)
    given = options.parse_args()
    trust = None
    if given.certificate:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(given.certificate, given.key)
    serve(Cloud(given.window, Link()), trust, lambda port: print(port, flush=True))


if __name__ == "__main__":
    main()
