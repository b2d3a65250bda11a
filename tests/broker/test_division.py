"""An agent on each of three nodes: the writer's uploads; where it is killed, another one does."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coldstream.plans.stream_words import MARKS
from coldstream_devkit.broker import BrokerNode, free_ports
from coldstream_devkit.broker_cluster import Cluster
from coldstream_devkit.campaign.life import leader_of

from .conftest import END_SECONDS, Site
from .test_cluster import CONFIRM_SECONDS, publish, publisher, whole
from .test_single_node import agent, scraped

#: Longer than an agent takes to start and to upload: only then does no other one act in its place.
TAKEOVER_SECONDS = 30


def published(node: BrokerNode, queue: str, word: str) -> set[bytes]:
    """Publish 300 messages by a connection of their own; those that were confirmed.

    One that says nothing while agents start and upload is hung up on after a minute or two.
    """
    with closing(publisher(node, queue)) as client:
        return publish(
            client, [b"%s %05d" % (word.encode(), n) for n in range(300)], CONFIRM_SECONDS
        )


class Agents:
    """One beside each node."""

    def __init__(self, site: Site, nodes: list[BrokerNode]) -> None:
        self.ports = dict(zip([node.name for node in nodes], free_ports(len(nodes)), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._site, self._nodes = site, {node.name: node for node in nodes}

    def start(self, name: str) -> None:
        more = ("--node", name, "--metrics-port", str(self.ports[name]))
        more += ("--takeover-seconds", str(TAKEOVER_SECONDS))
        self.processes[name] = self._site.start(*agent(self._site, self._nodes[name], *more))

    def value(self, name: str, metric: str, queue: str) -> float:
        """Of an agent; 0 while it does not answer, or does not know the stream."""
        try:
            page = scraped(self.ports[name])
        except (OSError, HTTPException):
            return 0.0
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == f"coldstream_stream_{metric}" and sample.labels["queue"] == queue:
                    return float(sample.value)
        return 0.0

    def marks(self, name: str, queue: str) -> list[float]:
        return [self.value(name, f"{mark}_offset", queue) for mark in MARKS]


@contextmanager
def beside_each(site: Site, nodes: list[BrokerNode]) -> Iterator[Agents]:
    agents = Agents(site, nodes)
    try:
        for node in nodes:
            agents.start(node.name)
        yield agents
    finally:
        for process in agents.processes.values():
            process.send_signal(signal.SIGTERM)
        ends = [
            process.communicate(timeout=END_SECONDS)[1] for process in agents.processes.values()
        ]
    for process, err in zip(agents.processes.values(), ends, strict=True):
        assert process.returncode == 0, err.decode()


def test_the_writers_agent_uploads_and_when_it_is_killed_another_one_takes_over(
    calm_cluster: Cluster,
    site: Site,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    queue, nodes = f"divided{secrets.token_hex(3)}", calm_cluster.nodes
    publisher(nodes[1], queue).close()
    calm_cluster.flush()
    confirmed = published(nodes[1], queue, "one")
    writer: BrokerNode = wait_for(lambda: leader_of(nodes, queue))
    others = [node.name for node in nodes if node is not writer]

    with beside_each(site, nodes) as agents:
        wait_for(lambda: confirmed <= set(whole(site, queue)))
        wait_for(lambda: set(agents.marks(writer.name, queue)) == {300.0})
        wait_for(lambda: all(agents.value(name, "committed_offset", queue) for name in others))
        assert agents.value(writer.name, "uploaded_fragments_total", queue) > 0
        wait_for(lambda: agents.value(writer.name, "writer", queue) == 1)
        for name in others:
            # Who it is, is asked again later where a broker did not say.
            wait_for(lambda: agents.value(name, "writer", queue) == 0)  # noqa: B023
            assert agents.value(name, "uploaded_fragments_total", queue) == 0

        agents.processes[writer.name].kill()
        agents.processes.pop(writer.name).communicate(timeout=END_SECONDS)
        confirmed |= published(nodes[1], queue, "two")
        wait_for(lambda: confirmed <= set(whole(site, queue)))
        assert sum(agents.value(name, "uploaded_fragments_total", queue) for name in others) > 0

        agents.start(writer.name)
        wait_for(lambda: agents.value(writer.name, "writer", queue) == 1)
        confirmed |= published(nodes[1], queue, "three")
        wait_for(lambda: confirmed <= set(whole(site, queue)))

    assert len(confirmed) == 900
    bodies = whole(site, queue)
    assert len(bodies) == len(set(bodies)) == 900
    verified = site.run("verify", f"//{queue}", "--deep")
    assert verified.returncode == 0, verified.stdout.decode()


@pytest.mark.slow
def test_streams_and_describe_show_what_the_agents_of_all_nodes_say(
    calm_cluster: Cluster,
    site: Site,
    wait_for: Callable[[Callable[[], Any]], Any],
) -> None:
    queue, nodes = f"told{secrets.token_hex(3)}", calm_cluster.nodes
    publisher(nodes[1], queue).close()
    calm_cluster.flush()
    published(nodes[1], queue, "one")
    writer: BrokerNode = wait_for(lambda: leader_of(nodes, queue))

    def told() -> Any:
        rows = [row for row in site.json("streams") if row["queue"] == queue]
        return rows and rows[0]["agent"] == writer.name and rows[0]["lag_s"] == 0 and rows[0]

    def all_told() -> bool:
        """Whether the writer's agent, too, has told of the stream since it was uploaded."""
        rows = site.json("describe", f"//{queue}")["nodes"]
        return len(rows) == 3 and rows[0]["watermarks"]["published"]["offset"] == 300

    with beside_each(site, nodes):
        wait_for(lambda: len(whole(site, queue)) == 300)
        wait_for(told)  # the second heartbeat is a minute after the first
        wait_for(all_told)
        described = site.json("describe", f"//{queue}")

    assert [row["writer"] for row in described["nodes"]] == [True, False, False]
    marks = described["nodes"][0]["watermarks"]
    assert {each["offset"] for each in marks.values()} == {described["offsets"]["next"]}
    assert all(each["time"] for each in marks.values())
