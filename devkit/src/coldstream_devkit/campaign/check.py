"""Whether the tier has what the brokers have delivered and confirmed, message by message."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass, field

from rstream import Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType

from coldstream.adapters.place import Remote
from coldstream.errors import NotFoundError
from coldstream.reader.gap import Gap
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.campaign.life import Kind, Life

Rows = dict[int, tuple[int, bytes]]
_SHOWN = 5


@dataclass(slots=True)
class Verdict:
    """What was found of one life.

    Attributes:
        life: that it is of.
        tiered: messages in the tier.
        unuploaded: delivered messages of a deleted stream behind the end of the tier.
        unjudged: messages of the tier that the tap could not know.
        lost_by_broker: confirmed messages that no broker ever delivered.
        holes: offsets that were declared lost.
        before: messages that local retention took before the first agent could claim the stream.
        defects: sentences.
    """

    life: Life
    tiered: int = 0
    unuploaded: int = 0
    unjudged: int = 0
    lost_by_broker: int = 0
    holes: int = 0
    before: int = 0
    defects: list[str] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """For the report."""
        return {
            "directory": self.life.directory,
            "life": self.life.uid,
            "deleted": self.life.deleted.is_set(),
            "sent": len(self.life.digests),
            "confirmed": len(self.life.confirmed),
            "delivered": len(self.life.delivered),
            "tiered": self.tiered,
            "not uploaded before deletion": self.unuploaded,
            "not seen by the tap": self.unjudged,
            "confirmed but lost by the broker": self.lost_by_broker,
            "offsets in holes": self.holes,
            "gone before the first claim": self.before,
            "contradictions of brokers": self.life.contradictions[:_SHOWN],
            "defects": self.defects,
        }


def tiered(remote: Remote, prefix: str, life: Life) -> tuple[Rows, list[Gap], int]:
    """Every message of a life in the tier, its holes, and its next offset.

    Raises:
        ColdstreamError: it cannot be read.
    """
    reader = StreamReader(remote.store, remote.catalog, prefix, life.directory)
    gaps: list[Gap] = []
    rows: Rows = {}
    try:
        end = reader.snapshot().item.next_offset
        for message in reader.messages(First(), on_gap=gaps.append):
            body = bytes(message.body)
            rows[message.offset] = life.number(body), hashlib.sha256(body).digest()
    except NotFoundError:
        return {}, [], 0
    return rows, gaps, end


def judge(life: Life, rows: Rows, gaps: list[Gap], end: int) -> Verdict:
    """Compare what the tier has of a life with what was sent, confirmed and delivered."""
    verdict = Verdict(life, tiered=len(rows))
    verdict.holes = sum(gap.next_offset - gap.first_offset for gap in gaps)
    _as_delivered(verdict, rows, gaps, end)
    _as_confirmed(verdict, rows, end)
    return verdict


def _as_delivered(verdict: Verdict, rows: Rows, gaps: list[Gap], end: int) -> None:
    life, defects = verdict.life, verdict.defects
    other = [offset for offset, row in rows.items() if life.delivered.get(offset, row) != row]
    _tell(defects, other, "differ from what the broker delivered")
    unseen = [
        offset for offset in rows if offset not in life.delivered and offset < life.next_offset
    ]
    known = [each for each in unseen if not _within(each, life.unseen)]
    verdict.unjudged = len(unseen) - len(known)
    verdict.unjudged += sum(offset >= life.next_offset for offset in rows)
    _tell(defects, known, "are in the tier, and no broker has delivered them")
    holes = [(gap.first_offset, gap.next_offset) for gap in gaps]
    missing = [offset for offset in life.delivered if offset not in rows]
    behind = [offset for offset in missing if offset >= end]
    if life.kind is Kind.SHORT and rows:
        begin = min(rows)
        verdict.before = sum(offset < begin for offset in missing)
        holes.append((0, begin))
    lost = [each for each in missing if each < end and not _within(each, holes)]
    _tell(defects, lost, "were delivered by a broker and are not in the tier")
    if life.deleted.is_set():
        verdict.unuploaded = len(behind)
    else:
        _tell(defects, behind, "were delivered by a broker and never reached the tier")


def _as_confirmed(verdict: Verdict, rows: Rows, end: int) -> None:
    """Every confirmed message once, with its bytes, in the order in which the broker has them."""
    life, defects = verdict.life, verdict.defects
    numbers = Counter(number for number, _ in rows.values())
    _tell(defects, [n for n, count in numbers.items() if count > 1], "are there more than once")
    alien = [o for o, (number, digest) in rows.items() if life.digests.get(number) != digest]
    _tell(defects, alien, "were never sent so")
    delivered = {number for number, _ in life.delivered.values()}
    lost = life.confirmed - numbers.keys()
    verdict.lost_by_broker = len(lost - delivered)
    if not life.deleted.is_set() and life.kind is not Kind.SHORT:
        _tell(defects, sorted(lost), "(numbers) were confirmed and are not in the tier")
    if life.kind is Kind.NAMED:
        order = [number for _, (number, _) in sorted(rows.items())]
        swapped = [b for a, b in itertools.pairwise(order) if b <= a]
        _tell(defects, swapped, "(numbers) of a named publisher are out of order")


def _within(offset: int, ranges: list[tuple[int, int]]) -> bool:
    return any(first <= offset < next_offset for first, next_offset in ranges)


def _tell(defects: list[str], found: list[int], what: str) -> None:
    if found:
        few = ", ".join(map(str, sorted(found)[:_SHOWN]))
        defects.append(f"{len(found)} {what}: {few}{', …' if len(found) > _SHOWN else ''}")


def kept(node: BrokerNode, life: Life) -> Rows:
    """What a stock consumer still gets of a living stream from a broker."""
    return asyncio.run(_kept(node, life))


async def _kept(node: BrokerNode, life: Life) -> Rows:
    rows: Rows = {}
    grown = asyncio.Event()

    def take(body: bytes, context: MessageContext) -> None:
        rows[context.offset] = life.number(body), hashlib.sha256(body).digest()
        grown.set()

    consumer = Consumer(
        "127.0.0.1", port=node.ports.stream, username="guest", password="guest"
    )  # fmt: skip
    await consumer.start()
    try:
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        await consumer.subscribe(life.queue, take, offset_specification=first)
        running = asyncio.create_task(consumer.run())
        with contextlib.suppress(TimeoutError):
            while True:
                grown.clear()
                await asyncio.wait_for(grown.wait(), 5)
        running.cancel()
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(consumer.close(), 3)
    return rows


def against_the_log(verdict: Verdict, rows: Rows, log: Rows) -> None:
    """Compare the tier with what the broker's own log has in the end."""
    other = [offset for offset, row in log.items() if rows.get(offset) != row]
    _tell(verdict.defects, other, "are other in the broker's log than in the tier")
    if log:
        low, high = min(log), max(log)
        more = [offset for offset in rows if low <= offset <= high and offset not in log]
        _tell(verdict.defects, more, "are in the tier and not in the broker's log")
