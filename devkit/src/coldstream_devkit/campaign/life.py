"""One life of a stream, from its creation to its deletion: what was sent, confirmed, delivered."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event

from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.broker_release import Release
from coldstream_devkit.stream_client import ClientError, StreamClient

_SEGMENT = {"stream-max-segment-size-bytes": "300000"}


class Kind(StrEnum):
    """How a stream is published to."""

    PLAIN = "plain"
    NAMED = "named"  # a name, publishing ids, each message sent again until it is confirmed
    TOGETHER = "together"  # sub-batches of gzip, and consumers that store offsets
    SHORT = "short"  # local retention takes what is old
    REBORN = "reborn"  # deleted and created anew
    FILTERED = "filtered"  # a filter value for each message, so that chunks have bloom filters


ARGUMENTS: Mapping[Kind, Mapping[str, str]] = {
    **dict.fromkeys(Kind, _SEGMENT),
    Kind.SHORT: {**_SEGMENT, "max-length-bytes": "3000000"},
    Kind.FILTERED: {**_SEGMENT, "stream-filter-size-bytes": "32"},
}


def kinds(release: Release) -> list[Kind]:
    """Kinds that a release knows: 3.10 has no filters."""
    return [kind for kind in Kind if release.suite or kind is not Kind.FILTERED]


@dataclass(slots=True)
class Life:
    """Filled by its publisher and its tap, each in a thread of its own; read when they have ended.

    Attributes:
        queue: name of the queue.
        uid: of this life, in every message.
        kind: how it is published to.
        directory: of its files, on every node.
        digests: SHA-256 of every message that was sent, by its number.
        confirmed: numbers that the broker has confirmed.
        again: of these, numbers that were sent more than once. A broker confirms such a one at once
            where a leader has it already, committed or not.
        delivered: (number, SHA-256) of what the broker has delivered, by offset.
        next_offset: behind the last chunk that was delivered.
        unseen: ranges of offsets that were not delivered: tracking data, or what retention took.
        contradictions: what the broker delivered twice and differently.
        quiet: the publisher must not connect any more.
        deleted: the stream is deleted, or about to be.
    """

    queue: str
    uid: str
    kind: Kind
    directory: str = ""
    digests: dict[int, bytes] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    delivered: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    next_offset: int = 0
    unseen: list[tuple[int, int]] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    quiet: Event = field(default_factory=Event)
    deleted: Event = field(default_factory=Event)

    def body(self, number: int, rng: random.Random) -> bytes:
        """A new message."""
        body = f"{self.uid} {number:09d} ".encode() + rng.randbytes(rng.randrange(50, 1500))
        self.digests[number] = hashlib.sha256(body).digest()
        return body

    def number(self, body: bytes) -> int:
        """The number in a message; -1 if it is none of this life."""
        uid, _, rest = body.partition(b" ")
        return int(rest[:9]) if uid == self.uid.encode() and rest[:9].isdigit() else -1


def leader_of(nodes: Sequence[BrokerNode], stream: str) -> BrokerNode | None:
    """The node that leads a stream, as the first of these says that answers."""
    for node in nodes:
        try:
            client = StreamClient(node.ports.stream, seconds=2)
        except ClientError:
            continue
        try:
            port = client.leader(stream)
        except ClientError:
            continue
        finally:
            client.close()
        found = next((each for each in nodes if each.ports.stream == port), None)
        if found is not None:
            return found
    return None


def earliest(node: BrokerNode, stream: str) -> int | None:
    """Offset of the first chunk of messages that a node has of a stream; None if it has none."""
    try:
        client = StreamClient(node.ports.stream, seconds=2)
    except ClientError:
        return None
    try:
        client.subscribe(stream)
        return next((chunk.first for chunk in client.delivered(2)), None)
    except ClientError:
        return None
    finally:
        client.close()


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.3) -> bool:
    """Wait so long for a condition; whether it came."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
