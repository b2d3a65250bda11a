"""Hostile frames through the gateway's decoding and decisions: `make fuzz-gateway`.

Frames that clients send are cut, stretched, spliced and flipped, many of them in one session. Each
input must end as a request, or as a `FrameError`; what is decided about it must be an action, and
nothing may be larger than the frame that it came in.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple

from coldstream.broker.frames import (
    FrameError,
    Key,
    OffsetType,
    binary,
    frame,
    properties,
    string,
    subscribe,
)
from coldstream.gateway.answers import FRAME_MAX
from coldstream.gateway.requests import AnyRequest, Authenticate, Named, Publish, Subscribe, parse
from coldstream.gateway.session import Detach, Grant, Perform, Send, Session
from coldstream.gateway.users import PatternRights

_CORRELATION = struct.pack(">I", 7)
#: What lengths are made of.
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)


def seeds() -> list[bytes]:
    """A frame of every command, behind its size."""
    c = _CORRELATION
    batch = struct.pack(">QBHII", 8, 0x90, 2, 30, 3) + b"abc"
    bodies: list[tuple[int, bytes]] = [
        (Key.PEER_PROPERTIES, c + properties({"product": "client", "version": "1"})),
        (Key.SASL_HANDSHAKE, c),
        (Key.SASL_AUTHENTICATE, c + string("PLAIN") + binary(b"\0guest\0guest")),
        (Key.TUNE, struct.pack(">II", FRAME_MAX, 60)),
        (0x8000 | Key.TUNE, struct.pack(">II", FRAME_MAX, 60)),
        (Key.OPEN, c + string("/")),
        (Key.COMMAND_VERSIONS, c + struct.pack(">iHHH", 1, Key.DELIVER, 1, 2)),
        (Key.METADATA, c + struct.pack(">i", 2) + string("orders") + string("invoices")),
        (Key.CREDIT, struct.pack(">BH", 1, 10)),
        (0x8000 | Key.CONSUMER_UPDATE, struct.pack(">IHHQ", 1, 1, 4, 100)),
        (Key.STORE_OFFSET, string("app") + string("orders") + struct.pack(">Q", 9)),
        (Key.QUERY_OFFSET, c + string("app") + string("orders")),
        (Key.UNSUBSCRIBE, c + b"\1"),
        (Key.STREAM_STATS, c + string("orders")),
        (Key.PARTITIONS, c + string("all")),
        (Key.ROUTE, c + string("key") + string("all")),
        (Key.RESOLVE_OFFSET, c + string("orders") + struct.pack(">HQ", 4, 12)),
        (Key.PUBLISH, struct.pack(">BiQI", 1, 2, 7, 2) + b"hi" + batch),
        (Key.DECLARE_PUBLISHER, c + b"\0" + string("") + string("orders")),
        (Key.CREATE, c + string("orders") + properties({"max-age": "1h"})),
        (Key.DELETE, c + string("orders")),
        (Key.HEARTBEAT, b""),
        (Key.CLOSE, c + struct.pack(">H", 1) + string("bye")),
    ]
    more = {"filter.0": "red", "match-unfiltered": "true", "name": "app"}
    bodies += [
        (Key.SUBSCRIBE, c + subscribe(1, "orders", where, offset=5, credit=10, more=more))
        for where in OffsetType
    ]
    return [frame(key, body)[4:] for key, body in bodies]


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """A frame that a client might send, or almost."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randrange(4)):
        way = rng.randrange(6)
        at = rng.randrange(len(data) + 1)
        if way == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif way == 1:
            del data[at:]
        elif way == 2:
            data[at:at] = rng.randbytes(rng.randrange(16))
        elif way == 3:
            number = rng.choice(_NUMBERS)
            size = rng.choice((1, 2, 4, 8))
            data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
        elif way == 4:
            other = rng.choice(pool)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        else:
            data += bytes(rng.randrange(64))
    return bytes(data)


def size_of(request: AnyRequest) -> int:
    """Bytes that a request keeps of its frame."""
    if isinstance(request, Publish):
        return 8 * len(request.ids)
    if isinstance(request, Subscribe):
        return len(request.stream) + sum(len(a) + len(b) for a, b in request.properties.items())
    if isinstance(request, Named):
        return len(request.name) + len(request.detail)
    if isinstance(request, Authenticate):
        return len(request.user) + len(request.password)
    return 0


def inputs(rng: random.Random) -> Iterator[tuple[Session, bytes]]:
    """Sessions, and what comes in each."""
    pool = seeds()
    while True:
        session = Session()
        if rng.random() < 0.8:
            session.logged_in("guest", PatternRights(".*"))
        if rng.random() < 0.8:
            session.opened("/")
            session.subscriptions[1] = "orders"
        for _ in range(rng.randrange(1, 20)):
            yield session, mutated(rng, pool)


def check(session: Session, data: bytes) -> str:
    """What becomes of one input.

    Raises:
        AssertionError: something that must not.
    """
    try:
        request = parse(data)
    except FrameError:
        return "broken"
    assert size_of(request) <= 2 * len(data), astuple(request)
    action = session.decide(request)
    assert action is None or isinstance(action, Send | Perform | Grant | Detach), action
    if isinstance(action, Send | Detach):
        assert len(action.data) <= 4096 + 4 * len(data)
    return type(request).__name__


def main() -> None:
    """Until so many inputs are through; the seed that is told gives them again."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)  # noqa: T201 - a command
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number, (session, data) in enumerate(inputs(random.Random(given.seed))):
        if number == given.inputs:
            break
        try:
            counts[check(session, data)] += 1
        except Exception:
            sys.stderr.write(f"input {number}: {data.hex()}\n")
            raise
    seconds = time.monotonic() - began
    found = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    print(f"{given.inputs} inputs in {seconds:.0f} s: {found}")  # noqa: T201


if __name__ == "__main__":
    main()
