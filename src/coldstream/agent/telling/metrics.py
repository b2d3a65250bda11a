"""What an agent does, for Prometheus: `/metrics` and `/healthz`.

Everything is read from the progress that the agent's loop has reported last, so a scrape costs the
loop nothing, and a loop that hangs shows.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coldstream.agent.telling.progress import Progress
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName

LOOPBACK = "127.0.0.1"
#: Requests that are answered at once; one more is hung up on.
_AT_ONCE = 16
#: A loop that has reported nothing for so long hangs: a claim waits for a function up to this.
_HANGS_SECONDS = 300.0
_LABELS = ("stream", "vhost", "queue")
_OF_AGENT = {
    "agent_held_bytes": "Of files that the broker has removed and that are kept until durable",
    "agent_held_budget_bytes": "That such files may take",
    "agent_held_lacking_files": "Not durable and not held, because too many are",
    "agent_uploads_in_flight": "Uploads under way",
    "agent_longest_look_seconds": "For how long the longest look at a stream has been under way",
    "agent_uploads_allowed": "Uploads that may be under way, as link and S3 are",
    "agent_fragment_limit_bytes": "Of the next fragments at the most, as the link is",
    "agent_upload_bytes_per_second": "That large uploads have come to of late, all together",
    "agent_store_refusals": "Uploads that S3 has refused or not answered, in a row",
    "agent_store_refuses": "1 while S3 has refused so often that it is only asked now and then",
}
_AGENT_COUNTERS = {
    "agent_held_dropped_segments": "Removed by the broker and let go, for want of budget",
}
_GAUGES = {
    "stream_committed_offset": "One past the last offset that is known to be committed",
    "stream_cut_offset": "Everything below has been cut into fragments",
    "stream_uploaded_offset": "Everything below is in S3",
    "stream_verified_offset": "Everything below has been checked by a function",
    "stream_published_offset": "Next offset of the manifest: what readers may read ends here",
    "stream_writer": "1 if the stream's writer is on this node, so that this agent uploads",
    "stream_lag_seconds": "For how long the oldest committed chunk waits to be published",
    "stream_lag_bytes": "Of the local log that are not published",
    "stream_unproved_seconds": "For how long it has local data that the broker does not prove",
    "stream_failing": "1 while the stream waits after an error",
    "stream_standstill_seconds": "For how long it makes no progress; 0 if it does",
    "stream_gone": "1 once the stream's directory is gone",
}
_HEADROOM = (
    "stream_headroom_seconds",
    "Until local retention takes what is not published; absent where nothing is about to",
)
_COUNTERS = {
    "stream_uploaded_bytes": "Uploaded by this agent",
    "stream_uploaded_fragments": "Uploaded by this agent",
    "stream_holes": "Ranges that this agent has declared lost",
    "stream_lost_offsets": "Offsets in ranges that this agent has declared lost",
}


class AgentMetrics(Collector):
    """The metrics of one agent.

    Args:
        figures: gives those of the agent as a whole, by name.
        names: queue of each directory, as far as it is known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        figures: Callable[[], Mapping[str, float]],
        names: Mapping[str, QueueName],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures, self._names, self._clock = figures, names, clock
        self._rows: list[Progress] = []
        self._reported_at = clock()

    def reported(self, rows: list[Progress]) -> None:
        """Take what the loop has come to."""
        self._rows, self._reported_at = rows, self._clock()

    @property
    def age(self) -> float:
        """Seconds since the loop has reported."""
        return self._clock() - self._reported_at

    def collect(self) -> Iterable[Metric]:
        """As prometheus_client wants it."""
        rows = self._rows
        yield _gauge("agent_streams", "Streams that the agent follows", len(rows))
        yield _gauge("agent_loop_age_seconds", "Since the agent's loop has reported", self.age)
        figures = self._figures()
        for figure, about in _OF_AGENT.items():
            yield _gauge(figure, about, figures[figure])
        for figure, about in _AGENT_COUNTERS.items():
            yield CounterMetricFamily(f"coldstream_{figure}", about, value=figures[figure])
        gauges = [_family(GaugeMetricFamily, *each) for each in _GAUGES.items()]
        counters = [_family(CounterMetricFamily, *each) for each in _COUNTERS.items()]
        headroom = _family(GaugeMetricFamily, *_HEADROOM)
        for row in rows:
            name = self._names.get(row.stream, QueueName())
            labels = [row.stream, name.vhost, name.queue]
            for family, value in zip([*gauges, *counters], _values(row), strict=True):
                if value is not None:
                    family.add_metric(labels, value)
            if row.marks.headroom_seconds is not None:
                headroom.add_metric(labels, row.marks.headroom_seconds)
        yield from gauges
        yield headroom
        yield from counters


def _values(row: Progress) -> Iterator[float | None]:
    """What is exported of a stream, in the order of the families; None for what is unknown."""
    marks = row.marks
    committed, *behind = (mark.offset for _, mark in marks.marks())
    yield committed
    yield from (each if marks.read else None for each in behind)
    yield marks.writer
    yield marks.lag_seconds if marks.read else None
    yield marks.lag_bytes if marks.read else None
    yield marks.unproved_seconds
    yield row.error is not None
    yield row.standstill.seconds if row.standstill else 0
    yield row.gone is not None
    yield row.bytes
    yield row.fragments
    yield len(row.holes)
    yield sum(next_offset - first for first, next_offset in row.holes)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"coldstream_{name}", about, value=value)


def _family(kind: Any, name: str, about: str) -> Any:
    return kind(f"coldstream_{name}", about, labels=_LABELS)


class Measured(Protocol):
    """What a service that has a loop tells of itself."""

    @property
    def age(self) -> float:
        """Seconds since its loop has said anything."""
        ...

    def collect(self) -> Iterable[Metric]:
        """As prometheus_client wants it."""
        ...


@contextmanager
def serving(
    metrics: Measured, port: int, address: str = LOOPBACK, *, who: str = "agent"
) -> Iterator[int]:
    """Serve both pages while the context lasts.

    Args:
        metrics: of the service.
        port: 0 for any free one.
        address: IPv4 or IPv6, of this machine.
        who: it is.

    Returns:
        The port.

    Raises:
        InvalidInputError: it is no address, or nobody can listen there.
    """
    kind = _server_of(address)
    registry = CollectorRegistry()
    registry.register(_Registered(metrics))
    pages = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/metrics":
            answer: Iterable[bytes] = pages(environ, start)
            return answer
        found, words = ("200 OK", "ok\n")
        if environ.get("PATH_INFO") != "/healthz":
            found, words = ("404 Not Found", "there are /metrics and /healthz\n")
        elif metrics.age > _HANGS_SECONDS:
            found = "503 Service Unavailable"
            words = f"the {who}'s loop has said nothing for {metrics.age:.0f} s\n"
        start(found, [("Content-Type", "text/plain; charset=utf-8")])
        return [words.encode()]

    try:
        server = make_server(address, port, app, kind, _Quiet)
    except OSError as exc:
        where = f"--metrics-port {port}, --metrics-address {address}"
        raise InvalidInputError(f"{where}: {exc.strerror or exc}") from exc
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Registered(Collector):
    """As the registry wants it: a class of its own."""

    def __init__(self, metrics: Measured) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """As the service says."""
        return self._metrics.collect()


class _Server(ThreadingMixIn, WSGIServer):
    """A scrape that hangs keeps nobody else waiting, and many take no more than some threads."""

    daemon_threads = True
    request_queue_size = 64  # With the base's 5, those who come at once try again after seconds.

    def __init__(self, *args: Any, **named: Any) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(*args, **named)

    def server_bind(self) -> None:
        """As the base does, but asks no name server what the address is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is left."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _ServerOfIPv6(_Server):
    """The same at an IPv6 address."""

    address_family = socket.AF_INET6


def _server_of(address: str) -> type[_Server]:
    try:
        version = ipaddress.ip_address(address).version
    except ValueError as exc:
        raise InvalidInputError(f"--metrics-address {address}: no IP address") from exc
    return _Server if version == 4 else _ServerOfIPv6


class _Quiet(WSGIRequestHandler):
    """Logs no request; gives one that does not come up after some seconds."""

    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own word
        """Nothing."""
