"""Three real nodes that have joined each other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from coldstream_devkit.broker import BrokerError, BrokerNode, Ports, free_ports
from coldstream_devkit.broker_release import SYSTEM, Release


@dataclass(slots=True)
class Cluster:
    """Three nodes that have joined each other.

    Attributes:
        nodes: the founder is the first.
    """

    nodes: list[BrokerNode]

    @classmethod
    def start(cls, base: Path, release: Release = SYSTEM) -> Cluster:
        """Start three nodes below `base`, and have them join.

        Raises:
            BrokerError: they do not come together.
        """
        epmd = free_ports(1)[0]
        nodes = []
        for number in range(3):
            ports = Ports.free()
            ports.epmd = epmd
            nodes.append(BrokerNode(base / f"n{number}", f"n{number}", ports, release=release))
        cluster = cls(nodes)
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                node.control("await_startup")  # its ports answer a little earlier
            for node in nodes[1:]:
                for words in (("stop_app",), ("join_cluster", "n0@localhost"), ("start_app",)):
                    node.control(*words)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def wait_for_coordinator(self) -> None:
        """Wait until every node is a member of the group that elects leaders of streams.

        There must have been a stream. It takes nodes in one after the other, every half a minute.

        Raises:
            BrokerError: they are not in it after five minutes.
        """
        ask = "element(2, ra:members({rabbit_stream_coordinator, node()}))."
        deadline = time.monotonic() + 300
        while True:
            found = self.nodes[0].control("eval", ask)
            if all(f"{node.name}@localhost" in found for node in self.nodes):
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"the coordinator has {found}")
            time.sleep(1)

    def flush(self) -> None:
        """Have every node write down what it knows of its queues, as `BrokerNode.flush`."""
        for node in self.nodes:
            node.flush()

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()
