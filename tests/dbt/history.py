"""What comes into shop.orders from run to run, and the latest of each key after each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.shop_orders import HOUR, NOON, message
from tests.support.tier import chunk

STREAM = "__orders_1795227164559759047"
AGAIN = "__orders_1795313564559759047"
OTHER = "__returns_1795227164559759048"
UNNAMED = "__unnamed_1795227164559759049"
DAY = 24 * HOUR


@dataclass(frozen=True)
class Step:
    """What was published before a run of dbt, and what that leaves.

    Attributes:
        says: what it is about.
        taken: stream, queue and one chunk, each a commit of the job's.
        rows: body by queue and key.
    """

    says: str
    taken: tuple[tuple[str, str, bytes], ...]
    rows: dict[tuple[str, str], str]


def _orders(
    first: int, *pairs: tuple[str, str], at: int, stream: str = STREAM
) -> tuple[str, str, bytes]:
    wires = [message(key.encode(), body.encode()) for key, body in pairs]
    queue = {OTHER: "returns", UNNAMED: ""}.get(stream, "orders")
    return stream, queue, chunk(first, *wires, timestamp=at)


STEPS = (
    Step(
        "a new table has no key that is deleted already",
        (_orders(0, ("a", "a0"), ("b", "b1"), ("c", "c2"), ("c", ""), at=NOON),),
        {("orders", "a"): "a0", ("orders", "b"): "b1"},
    ),
    Step(
        "of one stream the offset decides, by a clock that is behind, too; a key is one of a queue,"
        " or of a stream of which nobody has said it; a delete of what is not there leaves nothing",
        (
            _orders(4, ("a", "a4"), ("b", ""), ("c", "c6"), ("d", ""), at=NOON - 5),
            _orders(0, ("a", "r0"), at=NOON, stream=OTHER),
            _orders(0, ("a", "u0"), at=NOON, stream=UNNAMED),
        ),
        {
            ("orders", "a"): "a4", ("orders", "c"): "c6", ("returns", "a"): "r0",
            (UNNAMED, "a"): "u0",
        },
    ),
    Step(
        "all keys can be deleted",
        (
            _orders(8, ("a", ""), ("c", ""), at=NOON + HOUR),
            _orders(1, ("a", ""), at=NOON + HOUR, stream=OTHER),
            _orders(1, ("a", ""), at=NOON + HOUR, stream=UNNAMED),
        ),
        {},
    ),
    Step(
        "a table without rows goes on",
        (_orders(10, ("e", "e10"), at=NOON + 2 * HOUR),),
        {("orders", "e"): "e10"},
    ),
    Step(
        "a queue that was declared again is newer, whatever its broker's clock says",
        (_orders(0, ("e", "e0"), ("f", "f1"), at=NOON + HOUR, stream=AGAIN),),
        {("orders", "e"): "e0", ("orders", "f"): "f1"},
    ),
    Step(
        "what comes more than a day late is not seen",
        (_orders(2, ("a", "late"), at=NOON - DAY, stream=OTHER),),
        {("orders", "e"): "e0", ("orders", "f"): "f1"},
    ),
)  # fmt: skip
REFRESHED = {**STEPS[-1].rows, ("returns", "a"): "late"}
