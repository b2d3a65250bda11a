"""What Prometheus is told of an agent, and when it counts as healthy."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coldstream.agent.telling.metrics import AgentMetrics, serving
from coldstream.agent.telling.progress import Progress, Standstill
from coldstream.agent.telling.watermarks import Mark, Watermarks
from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.stream_words import MARKS

from .conftest import Site
from .theft import STREAM, write

NAMES = {STREAM: QueueName("c", "/", 'or"ders\n')}

FIGURES = {
    "agent_held_bytes": 5.0,
    "agent_held_budget_bytes": 9.0,
    "agent_held_lacking_files": 4.0,
    "agent_held_dropped_segments": 1.0,
    "agent_uploads_in_flight": 2.0,
    "agent_longest_look_seconds": 0.5,
    "agent_uploads_allowed": 3.0,
    "agent_fragment_limit_bytes": 64.0,
    "agent_upload_bytes_per_second": 7.0,
    "agent_store_refusals": 1.0,
    "agent_store_refuses": 0.0,
}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> AgentMetrics:
    return AgentMetrics(lambda: FIGURES, NAMES, clock)


@pytest.fixture
def port(metrics: AgentMetrics) -> Iterator[int]:
    with serving(metrics, 0) as there:
        yield there


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_stream_has_its_watermarks_and_its_name(metrics: AgentMetrics, port: int) -> None:
    standing = Standstill(180.0, 3, "why")
    row = Progress(STREAM, next_offset=40, cut_offset=60, fragments=2, bytes=900)
    row.error, row.standstill, row.holes = UnavailableError("x"), standing, [(1, 4)]
    row.marks = Watermarks(Mark(70), Mark(60), Mark(50), Mark(40), Mark(40), False, 7.5, 99, 12.0)
    row.marks.read = True
    row.marks.unproved_seconds = 400.0
    metrics.reported([row, Progress("__b_2")])

    found = samples(get(port, "/metrics")[1])

    labels = {"stream": STREAM, "vhost": "/", "queue": 'or"ders\n'}
    for name, value in {
        "stream_committed_offset": 70,
        "stream_cut_offset": 60,
        "stream_uploaded_offset": 50,
        "stream_verified_offset": 40,
        "stream_published_offset": 40,
        "stream_writer": 0,
        "stream_lag_seconds": 7.5,
        "stream_lag_bytes": 99,
        "stream_headroom_seconds": 12,
        "stream_gone": 0,
        "stream_unproved_seconds": 400,
        "stream_lost_offsets_total": 3,
        "stream_failing": 1,
        "stream_standstill_seconds": 180,
        "stream_uploaded_bytes_total": 900,
        "stream_uploaded_fragments_total": 2,
        "stream_holes_total": 1,
    }.items():
        assert found[f"coldstream_{name}"][0] == (labels, value)
    unread = {"cut_offset", "uploaded_offset", "verified_offset", "published_offset"}
    for name in (*unread, "lag_seconds", "lag_bytes", "headroom_seconds"):
        assert len(found[f"coldstream_stream_{name}"]) == 1, "unknown is not 0"
    assert found["coldstream_agent_streams"] == [({}, 2)]
    assert found["coldstream_agent_held_lacking_files"] == [({}, 4)]
    assert found["coldstream_agent_held_dropped_segments_total"] == [({}, 1)]


def test_a_loop_that_says_nothing_is_not_healthy(
    metrics: AgentMetrics, port: int, clock: Clock
) -> None:
    assert get(port, "/healthz") == (200, "ok\n")

    clock.now += 301
    assert get(port, "/healthz")[0] == 503

    metrics.reported([])
    assert get(port, "/healthz")[0] == 200
    assert get(port, "/")[0] == 404


def test_a_port_that_is_taken_is_told(metrics: AgentMetrics, port: int) -> None:
    with pytest.raises(InvalidInputError, match=f"--metrics-port {port}"), serving(metrics, port):
        pass


def test_it_is_served_at_an_ipv6_address_too(metrics: AgentMetrics) -> None:
    with (
        serving(metrics, 0, "::1") as port,
        urllib.request.urlopen(f"http://[::1]:{port}/healthz", timeout=60) as page,
    ):
        assert page.read() == b"ok\n"


@pytest.mark.parametrize(
    ("address", "words"),
    [("rabbit-1", "no IP address"), ("192.0.2.1", "Cannot assign requested address")],
)
def test_an_address_that_is_not_this_machines_is_told(
    metrics: AgentMetrics, address: str, words: str
) -> None:
    with (
        pytest.raises(InvalidInputError, match=f"--metrics-address {address}: {words}"),
        serving(metrics, 0, address),
    ):
        pass


def test_who_opens_many_connections_takes_no_more_than_some_threads(
    metrics: AgentMetrics, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once they are closed everybody is served again."""
    # Nobody is given up here.
    monkeypatch.setattr("coldstream.agent.telling.metrics._Quiet.timeout", 600)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    # The last one is taken after all others: then whoever has no thread has been hung up on.
    silent[-1].settimeout(30)
    assert silent[-1].recv(1) == b""
    served = sum(not _is_hung_up(each) for each in silent)
    for each in silent:
        each.close()

    assert served == 16
    while True:
        with suppress(OSError):
            assert get(port, "/healthz") == (200, "ok\n")
            break


def _is_hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_what_the_loop_reports_is_what_is_served(site: Site) -> None:
    write(site, 200)
    agent = site.agent()
    metrics = AgentMetrics(agent.figures, {})
    agent.report = metrics.reported

    with serving(metrics, 0) as port:
        agent.run()
        found = samples(get(port, "/metrics")[1])

    for mark in MARKS:
        assert found[f"coldstream_stream_{mark}_offset"][0][1] == 200
    assert found["coldstream_stream_lag_seconds"][0][1] == 0
    assert found["coldstream_agent_uploads_in_flight"] == [({}, 0)]
