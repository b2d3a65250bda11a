"""What a gateway has done, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coldstream.gateway.remote import Tier
from coldstream.reader.budget import MemoryBudget

_GAUGES = {
    "connections": "Clients that are connected",
    "subscriptions": "Subscriptions of all clients",
}
_COUNTERS = {
    "accepted": "Connections that were taken",
    "turned_away": "Connections beyond the limit",
    "refused_logins": "Logins with a wrong password",
    "broken_frames": "Frames that are none of the protocol",
    "ended": "Subscriptions that ended by damage, or with their stream",
    "told": "Times that offsets were passed over, or a read had to wait",
    "lost_offsets": "Offsets of consumers that could not be stored",
}

_BY_TIER = {
    "chunks": "Chunks that were delivered, by where they were read",
    "bytes": "Bytes of chunks that were delivered, by where they were read",
}


@dataclass(slots=True)
class GatewayMetrics:
    """Counts; changed by the event loop only.

    Args:
        budget: of what was fetched ahead.
        clock: monotonic seconds.
    """

    budget: MemoryBudget
    clock: Callable[[], float] = time.monotonic
    connections: int = 0
    subscriptions: int = 0
    accepted: int = 0
    turned_away: int = 0
    refused_logins: int = 0
    broken_frames: int = 0
    ended: int = 0
    told: int = 0
    lost_offsets: int = 0
    chunks: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))
    bytes: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))
    alive_at: float = float("-inf")

    def delivered(self, size: int, tier: Tier) -> None:
        """One chunk of so many bytes, and where it was read."""
        self.chunks[tier] += 1
        self.bytes[tier] += size

    def alive(self) -> None:
        """The event loop goes round."""
        self.alive_at = self.clock()

    @property
    def age(self) -> float:
        """Seconds since the event loop went round."""
        return self.clock() - self.alive_at

    def collect(self) -> Iterable[Metric]:
        """As prometheus_client wants it."""
        for name, about in _GAUGES.items():
            yield GaugeMetricFamily(f"coldstream_gateway_{name}", about, value=getattr(self, name))
        for name, about in _COUNTERS.items():
            value = getattr(self, name)
            yield CounterMetricFamily(f"coldstream_gateway_{name}", about, value=value)
        for name, about in _BY_TIER.items():
            family = CounterMetricFamily(f"coldstream_gateway_{name}", about, labels=("tier",))
            for tier, value in getattr(self, name).items():
                family.add_metric([tier], value)
            yield family
        held = "Bytes that reads have fetched ahead"
        yield GaugeMetricFamily("coldstream_gateway_held_bytes", held, value=self.budget.held)
        age = "Since the event loop went round"
        yield GaugeMetricFamily("coldstream_gateway_loop_age_seconds", age, value=self.age)
