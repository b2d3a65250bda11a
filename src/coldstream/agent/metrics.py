"""What an agent does, for Prometheus: `/metrics` and `/healthz` on the loopback address.

Everything is read from the progress that the agent's loop has reported last, so a scrape costs the
loop nothing, and a loop that hangs shows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coldstream.agent.progress import Progress
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName

_ADDRESS = "127.0.0.1"
#: A loop that has reported nothing for so long hangs: a claim waits for a function up to this.
_HANGS_SECONDS = 300.0
_LABELS = ("stream", "vhost", "queue")


class AgentMetrics(Collector):
    """The metrics of one agent.

    Args:
        limit: gives where the committed part of a stream ends, as far as it is known.
        names: queue of each directory, as far as it is known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit: Callable[[str], int],
        names: Mapping[str, QueueName],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._names, self._clock = limit, names, clock
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
        per_stream = (
            ("stream_committed_offset", "One past the last offset that is known to be committed"),
            ("stream_cut_offset", "Everything below has been cut into fragments"),
            ("stream_published_offset", "Next offset of the manifest"),
            ("stream_failing", "1 while the stream waits after an error"),
            ("stream_standstill_seconds", "For how long it makes no progress; 0 if it does"),
        )
        gauges = [_family(GaugeMetricFamily, name, about) for name, about in per_stream]
        counted = (
            ("stream_uploaded_bytes", "Uploaded by this agent"),
            ("stream_uploaded_fragments", "Uploaded by this agent"),
            ("stream_holes", "Ranges that this agent has declared lost"),
        )
        counters = [_family(CounterMetricFamily, name, about) for name, about in counted]
        for row in rows:
            name = self._names.get(row.stream, QueueName())
            labels = [row.stream, name.vhost, name.queue]
            values = (
                self._limit(row.stream),
                row.cut_offset,
                row.next_offset,
                row.error is not None,
                row.standstill.seconds if row.standstill else 0,
                row.bytes,
                row.fragments,
                len(row.holes),
            )
            for family, value in zip([*gauges, *counters], values, strict=True):
                family.add_metric(labels, value)
        yield from gauges
        yield from counters


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"coldstream_{name}", about, value=value)


def _family(kind: Any, name: str, about: str) -> Any:
    return kind(f"coldstream_{name}", about, labels=_LABELS)


@contextmanager
def serving(metrics: AgentMetrics, port: int) -> Iterator[int]:
    """Serve both pages while the context lasts.

    Args:
        metrics: of the agent.
        port: on the loopback address; 0 for any free one.

    Returns:
        The port.

    Raises:
        InvalidInputError: nobody can listen there.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
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
            words = f"the agent's loop has said nothing for {metrics.age:.0f} s\n"
        start(found, [("Content-Type", "text/plain; charset=utf-8")])
        return [words.encode()]

    try:
        server = make_server(_ADDRESS, port, app, _Server, _Quiet)
    except OSError as exc:
        raise InvalidInputError(f"--metrics-port {port}: {exc.strerror or exc}") from exc
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    """A scrape that hangs keeps nobody else waiting."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Logs no request; gives one that does not come up after some seconds."""

    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own word
        """Nothing."""
