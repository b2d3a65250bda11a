"""The agent beside one living broker: what is confirmed comes back, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coldstream_devkit.broker import BrokerNode, free_ports
from coldstream_devkit.stream_client import StreamClient

from .conftest import END_SECONDS, Publisher, Site, start_again


@pytest.fixture
def stream() -> str:
    """A name of its own for each test: they share the tier."""
    return f"orders{secrets.token_hex(3)}"


def agent(site: Site, node: BrokerNode, *more: str) -> tuple[str, ...]:
    """The arguments that an operator gives."""
    return (
        "agent", "run", "--data-dir", str(node.data_dir), "--committed", "broker",
        "--stream-uri", node.stream_uri, "--management-uri", node.management_uri,
        "--flush-seconds", "1", "--takeover-seconds", "3", *more,
    )  # fmt: skip


def remote(site: Site, stream: str) -> list[bytes]:
    """Bodies of all messages of a stream that the tier has, in order."""
    read = site.run("read", f"//{stream}", "--from", "first", "--output", "raw")
    assert read.returncode == 0, read.stderr.decode()
    return [read.stdout[at : at + 100] for at in range(0, len(read.stdout), 100)]


def caught_up(site: Site, stream: str, confirmed: set[bytes]) -> bool:
    """Whether the tier has every confirmed message."""
    rows = site.json("streams")
    return any(row["queue"] == stream for row in rows) and confirmed <= set(remote(site, stream))


def scraped(port: int) -> str:
    """The metrics of an agent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        return str(page.read().decode())


def scraped_if_there(port: int) -> str:
    """The metrics of an agent; "" before it serves them."""
    with contextlib.suppress(OSError):
        return scraped(port)
    return ""


def watermarks(page: str, stream: str) -> set[float]:
    """The offsets that an agent's metrics give for a stream."""
    return {
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.endswith("_offset") and sample.labels["queue"] == stream
    }


def test_what_a_client_has_confirmed_is_in_the_tier_while_both_go_on(
    site: Site, node: BrokerNode, stream: str, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    with Publisher(node, stream) as publisher:
        wait_for(lambda: publisher.confirmed)
        (port,) = free_ports(1)
        process = site.start(*agent(site, node, "--metrics-port", str(port)))
        wait_for(lambda: len(publisher.confirmed) > 1000 and caught_up(site, stream, set()))
        before = len(publisher.confirmed)
        wait_for(lambda: len(publisher.confirmed) > before + 1000)
    try:
        wait_for(lambda: caught_up(site, stream, publisher.confirmed))
        # Committed, cut, uploaded, verified and published are the same at the end.
        wait_for(lambda: len(watermarks(scraped(port), stream)) == 1)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_SECONDS)

    assert process.returncode == 0, err.decode()
    bodies = remote(site, stream)
    assert len(bodies) == len(set(bodies))
    assert bodies == sorted(bodies)
    verified = site.run("verify", f"//{stream}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


def test_a_broker_that_is_killed_under_load_and_comes_back_loses_nothing_in_the_tier(
    site: Site, node: BrokerNode, stream: str, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    process = None
    try:
        with Publisher(node, stream) as publisher:
            wait_for(lambda: publisher.confirmed)
            process = site.start(*agent(site, node))
            wait_for(lambda: caught_up(site, stream, set()))
            for _ in range(3):
                before = len(publisher.confirmed)
                wait_for(lambda: len(publisher.confirmed) > before + 1000)  # noqa: B023
                node.flush()
                node.kill()
                start_again(node, stream)
            before = len(publisher.confirmed)
            wait_for(lambda: len(publisher.confirmed) > before)
        wait_for(lambda: caught_up(site, stream, publisher.confirmed))
    finally:
        if process is not None:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, err.decode()
    verified = site.run("verify", f"//{stream}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


def test_what_waits_for_its_fragment_to_fill_is_uploaded_when_its_stream_is_deleted(
    site: Site, node: BrokerNode, stream: str, wait_for: Callable[[Callable[[], Any]], Any]
) -> None:
    (port,), size = free_ports(1), 3000
    with contextlib.closing(StreamClient(node.ports.stream)) as client:
        client.create(stream, {"stream-max-segment-size-bytes": "50000"})
        client.declare(stream)
        bodies = [(b"%09d " % n).ljust(100, b".") for n in range(size)]
        client.publish(list(enumerate(bodies)))
        waiting = set(range(size))
        while waiting:
            waiting -= set(client.confirmed(10))
        more = ("--flush-seconds", "900", "--metrics-port", str(port))
        process = site.start(*agent(site, node, *more))
        try:
            wait_for(lambda: max(watermarks(scraped_if_there(port), stream), default=0) == size)
            assert min(watermarks(scraped(port), stream)) < size, "nothing waits"
            client.delete(stream)
            wait_for(lambda: remote(site, stream) == bodies)
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, err.decode()


def test_one_run_uploads_what_is_committed_and_ends(
    site: Site, node: BrokerNode, stream: str
) -> None:
    with Publisher(node, stream) as publisher:
        while len(publisher.confirmed) < 500:
            time.sleep(0.1)

    done = site.run(*agent(site, node, "--once"))

    assert done.returncode == 0, done.stderr.decode()
    assert publisher.confirmed <= set(remote(site, stream))


def test_without_a_broker_nothing_is_uploaded_and_it_is_said(
    site: Site, node: BrokerNode, stream: str
) -> None:
    with Publisher(node, stream) as publisher:
        while len(publisher.confirmed) < 100:
            time.sleep(0.1)
    node.kill()

    process = site.start(*agent(site, node))
    assert process.stderr is not None
    try:
        told = any(b"nothing new is proved to be committed" in line for line in process.stderr)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=END_SECONDS)

    assert told
    assert process.returncode == 0
    # The agent may have told of it already; an item it has none.
    rows = [row for row in site.json("streams") if row["stream"].startswith(f"__{stream}_")]
    assert all(row["state"] is None for row in rows)
