"""Which streams a broker has no more, by its own list of queues.

An agent's word counts for nothing here but to keep a stream: who has stolen an agent's credentials
can say that streams are gone, or what their queues are called. What remains are the broker's list,
which an operator asks for, and the name of the directory, which the broker made of the queue's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.names import made_ns
from coldstream.plans.probe import is_probe

_NS_PER_MS = 1_000_000


class Fate(StrEnum):
    """What there is to say of a live stream; the values are the words for people."""

    GONE = "gone"
    YOUNG = "gone, and younger than asked for"
    QUEUE = "the broker has a queue that may be its own"
    AGENT = "an agent has it"
    ODD = "no broker has made its name"


@dataclass(frozen=True, slots=True)
class Judged:
    """A stream and its fate; `newest_ms` is when it last had news, by the broker's clock."""

    item: CatalogItem
    fate: Fate
    newest_ms: int


def judge(
    items: Iterable[CatalogItem],
    queues: Iterable[QueueName],
    agents_have: Collection[str],
    *,
    before_ms: int,
) -> list[Judged]:
    """The fate of each live stream, in the order of `items`; probes of `doctor` are none.

    Args:
        items: of the catalog.
        queues: all streams of the broker, as it lists them.
        agents_have: directories that agents tell of.
        before_ms: only streams without news since then are gone for long enough, ms since the Unix
            epoch.
    """
    patterns = {made for each in queues for made in each.made}
    wide = [re.compile(each) for each in patterns if "{" in each]
    judged = []
    for item in items:
        if item.state is not StreamState.LIVE or is_probe(item.stream):
            continue
        made, at_ns = item.stream.rpartition("_")[0], made_ns(item.stream)
        newest_ms = max(at_ns // _NS_PER_MS, item.last_timestamp)
        if not made or not at_ns:
            fate = Fate.ODD
        elif made in patterns or any(each.fullmatch(made) for each in wide):
            fate = Fate.QUEUE
        elif item.stream in agents_have:
            fate = Fate.AGENT
        else:
            fate = Fate.GONE if newest_ms < before_ms else Fate.YOUNG
        judged.append(Judged(item, fate, newest_ms))
    return judged
