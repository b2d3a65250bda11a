"""`coldstream doctor` beside a living broker: what it proves, and what it says is wrong."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coldstream_devkit.broker import BrokerNode

from .conftest import Publisher, Site


def examined(site: Site, node: BrokerNode, **others: str) -> dict[str, dict[str, Any]]:
    """What the command says of the broker, by what it looked at."""
    options = {
        "data-dir": str(node.data_dir),
        "committed": "broker",
        "stream-uri": node.stream_uri,
        "management-uri": node.management_uri,
    } | {name.replace("_", "-"): value for name, value in others.items()}
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = site.run("doctor", *arguments, "--no-probe", "--json")
    assert b"guest:" not in done.stdout + done.stderr, "a password is told"
    answer = json.loads(done.stdout)
    assert done.returncode == (0 if answer["ok"] else 1)
    return {row["check"]: row for row in answer["checks"]}


def levels(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How bad each finding about the broker is."""
    of_it = ("stream port", "management API", "broker", "virtual hosts", "committed", "settings")
    return {about: row["level"] for about, row in rows.items() if about in of_it}


@contextmanager
def mute() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_broker_that_is_well_is_proved_stream_by_stream(site: Site, node: BrokerNode) -> None:
    assert "is not there yet" in examined(site, node)["data directory"]["message"]
    with Publisher(node, "orders") as orders, Publisher(node, "invoices") as invoices:
        while min(len(orders.confirmed), len(invoices.confirmed)) < 100:
            time.sleep(0.1)
        rows = examined(site, node)

    assert set(levels(rows).values()) == {"ok"}
    assert f"RabbitMQ {node.control('version').strip()}" in rows["broker"]["message"]
    assert "of 2 of 2 streams" in rows["committed"]["message"]
    assert "//orders" in rows["committed"]["message"]
    assert rows["clock and broker"]["level"] == "ok"
    assert "2 streams" in rows["data directory"]["message"]


def test_who_may_not_log_in_or_not_enter_or_not_read_is_told_what_to_permit(
    site: Site, node: BrokerNode
) -> None:
    with Publisher(node, "orders") as publisher:
        while len(publisher.confirmed) < 100:
            time.sleep(0.1)
    stream, management = node.ports.stream, node.ports.management

    wrong = examined(site, node, stream_uri=f"rabbitmq-stream://guest:no@127.0.0.1:{stream}")
    assert levels(wrong)["broker"] == "FAILED"
    assert "authenticate_user" in wrong["broker"]["try"]

    node.control("add_user", "tier", "s3cret")
    uris = {
        "stream_uri": f"rabbitmq-stream://tier:s3cret@127.0.0.1:{stream}",
        "management_uri": f"http://tier:s3cret@127.0.0.1:{management}",
    }
    plain = examined(site, node, **uris)
    assert levels(plain)["management API"] == "FAILED"
    assert "set_user_tags tier" in plain["management API"]["try"]

    node.control("set_user_tags", "tier", "monitoring")
    outside = examined(site, node, **uris)
    assert levels(outside)["management API"] == "warning"
    assert levels(outside)["broker"] == "FAILED"
    assert "set_permissions -p / tier" in outside["broker"]["try"]

    seeing = uris | {"management_uri": node.management_uri}
    assert "set_permissions -p / tier" in examined(site, node, **seeing)["virtual hosts"]["try"]

    node.control("set_permissions", "-p", "/", "tier", "", "", "nothing")
    blind = examined(site, node, **uris)
    assert levels(blind)["virtual hosts"] == "ok"
    assert levels(blind)["committed"] == "FAILED"
    assert "set_permissions -p / tier '' '' '.*'" in blind["committed"]["try"]

    node.control("set_permissions", "-p", "/", "tier", "", "", ".*")
    assert set(levels(examined(site, node, **uris)).values()) == {"ok"}


def test_ports_where_no_stream_listener_is_fail_and_stop_no_other_check(
    site: Site, node: BrokerNode
) -> None:
    node.control("set_cluster_name", "x")  # it lives
    with mute() as port:
        rows = examined(
            site, node,
            stream_uri=f"rabbitmq-stream://guest:x@127.0.0.1:{port}",
            management_uri=f"http://guest:x@127.0.0.1:{port}",
        )  # fmt: skip
    assert levels(rows)["broker"] == levels(rows)["management API"] == "FAILED"
    assert rows["table"]["level"] == rows["bucket"]["level"] == "ok"

    amqp = f"rabbitmq-stream://guest:x@127.0.0.1:{node.ports.amqp}"
    assert levels(examined(site, node, stream_uri=amqp))["broker"] == "FAILED"

    over_tls = f"rabbitmq-stream+tls://guest:x@127.0.0.1:{node.ports.stream}"
    assert levels(examined(site, node, stream_uri=over_tls))["broker"] == "FAILED"

    node.kill()
    down = examined(site, node)
    assert levels(down)["stream port"] == levels(down)["management API"] == "FAILED"
    assert "rabbitmq_stream" in down["stream port"]["try"]


def test_a_broker_that_does_not_write_to_the_directory_is_found(
    site: Site, node: BrokerNode
) -> None:
    with Publisher(node, "orders") as publisher:
        while len(publisher.confirmed) < 100:
            time.sleep(0.1)
    other = BrokerNode(node.base.with_name(f"{node.base.name}-other"))
    try:
        other.start()
        other.control("await_startup")  # its ports answer a little earlier
        rows = examined(
            site, node, stream_uri=other.stream_uri, management_uri=other.management_uri
        )
    finally:
        other.stop()

    assert levels(rows)["broker"] == "ok"
    assert levels(rows)["committed"] == "FAILED"
    assert "the broker that writes to --data-dir" in rows["committed"]["try"]
