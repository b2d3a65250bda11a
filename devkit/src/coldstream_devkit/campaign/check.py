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
from coldstream.names import data_prefix, parse_data_key
from coldstream.ports import ObjectStore
from coldstream.reader.gap import Gap
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream_devkit.broker import BrokerNode
from coldstream_devkit.campaign.life import Kind, Life

Rows = dict[int, tuple[int, bytes]]
_SHOWN = 5
_PAGE = 1000


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
        late: objects that hold some of these; they came when it was too late, and are kept.
        defects: sentences.
    """

    life: Life
    tiered: int = 0
    unuploaded: int = 0
    unjudged: int = 0
    lost_by_broker: int = 0
    holes: int = 0
    late: int = 0
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
            "objects over holes": self.late,
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
    _as_confirmed(verdict, rows, gaps)
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
    lost = [each for each in missing if each < end and not _within(each, holes)]
    _tell(defects, lost, "were delivered by a broker and are not in the tier")
    if life.deleted.is_set():
        verdict.unuploaded = len(behind)
    else:
        _tell(defects, behind, "were delivered by a broker and never reached the tier")


def _as_confirmed(verdict: Verdict, rows: Rows, gaps: list[Gap]) -> None:
    """Every confirmed message once, with its bytes, in the order in which the broker has them."""
    life, defects = verdict.life, verdict.defects
    numbers = Counter(number for number, _ in rows.values())
    _tell(defects, [n for n, count in numbers.items() if count > 1], "are there more than once")
    alien = [o for o, (number, digest) in rows.items() if life.digests.get(number) != digest]
    _tell(defects, alien, "were never sent so")
    offsets = {number: offset for offset, (number, _) in life.delivered.items()}
    lost = life.confirmed - numbers.keys()
    verdict.lost_by_broker = len(lost - offsets.keys())
    if life.kind is Kind.SHORT:
        # Offsets that are declared lost are; and what the tap missed may be in them, too.
        holes = [(gap.first_offset, gap.next_offset) for gap in gaps]
        lost = {n for n in lost if n in offsets and not _within(offsets[n], holes)}
    if not life.deleted.is_set():
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


def only_lost(
    verdict: Verdict, gaps: list[Gap], told: list[tuple[int, int]], begins: list[int | None]
) -> None:
    """See that what is declared lost is exactly what every member has lost, and that it is told.

    Args:
        verdict: gets the defects.
        gaps: that a reader was told of.
        told: holes that the command line describes.
        begins: offset of the oldest chunk that each member has; None for one that has none.
    """
    found = [(gap.first_offset, gap.next_offset) for gap in gaps]
    if found != told:
        verdict.defects.append(f"a reader is told of {found}, an operator of {told}")
    kept_yet = [
        f"[{first}, {next_offset}) is a hole, and a member has {begin} yet"
        for first, next_offset in found
        for begin in begins
        if begin is not None and begin < next_offset
    ]
    verdict.defects += kept_yet[:_SHOWN]


def late(objects: ObjectStore, prefix: str, life: Life, gaps: list[Gap]) -> int:
    """How many fragments in the bucket hold offsets of holes."""
    below, behind, count = data_prefix(prefix, life.directory), "", 0
    while True:
        page = objects.list(below, start_after=behind)
        for info in page:
            key = parse_data_key(info.key, prefix)
            count += key.kind == "fragment" and any(
                key.first_offset < gap.next_offset and gap.first_offset < key.next_offset
                for gap in gaps
            )
        if len(page) < _PAGE:
            return count
        behind = page[-1].key


def against_the_log(verdict: Verdict, rows: Rows, log: Rows) -> None:
    """Compare the tier with what the broker's own log has in the end."""
    other = [offset for offset, row in log.items() if rows.get(offset) != row]
    _tell(verdict.defects, other, "are other in the broker's log than in the tier")
    if log:
        low, high = min(log), max(log)
        more = [offset for offset in rows if low <= offset <= high and offset not in log]
        _tell(verdict.defects, more, "are in the tier and not in the broker's log")
