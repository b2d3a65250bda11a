"""What an agent says of itself and of its streams now and then, where others can read it.

A word costs money: a page of words is written when something on it has changed, and of many such
pages a few at each heartbeat, those that have waited longest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coldstream.agent.host import Host, Workers
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.progress import Progress
from coldstream.agent.telling.watermarks import SHORT_HEADROOM
from coldstream.errors import ColdstreamError
from coldstream.plans.heartbeats import Heartbeat, NameWatch
from coldstream.plans.stream_words import StreamWord, WordsPage, pack, page_count, paged
from coldstream.ports import Heartbeats

#: Pages at one heartbeat: until all have been told once, and then.
_AT_FIRST, _LATER = 32, 8


def word_of(row: Progress, now_ms: int) -> StreamWord:
    """What there is to say of a stream; times in ms since the Unix epoch."""
    marks, still, error = row.marks, row.standstill, row.error
    left = marks.headroom_seconds
    return StreamWord(
        stream=row.stream,
        super_stream=marks.super_stream,
        unproved_ms=int(marks.unproved_seconds * 1000),
        local_end=marks.local_end,
        writer=marks.writer,
        offsets=tuple(mark.offset for _, mark in marks.marks()),
        times_ms=tuple(mark.at_ms for _, mark in marks.marks()),
        lag_ms=int(marks.lag_seconds * 1000),
        lag_bytes=marks.lag_bytes,
        headroom_ms=-1 if left is None else int(left * 1000),
        stuck_since_ms=0 if still is None else max(0, now_ms - int(still.seconds * 1000)),
        reason=still.reason if still is not None else "" if error is None else str(error),
    )


def heartbeat_of(
    rows: Sequence[Progress],
    settings: AgentSettings,
    *,
    now_ms: int,
    pages: int,
    left_out: int = 0,
    shared: bool = False,
    instance: str = "",
) -> Heartbeat:
    """What there is to say of the agent itself, whose rules leave so many directories out."""
    lefts = [each.marks.headroom_seconds for each in rows]
    return Heartbeat(
        node=settings.node,
        at_ms=now_ms,
        interval_ms=int(settings.heartbeat_seconds * 1000),
        streams=len(rows),
        behind=sum(each.next_offset < each.cut_offset for each in rows),
        standing=sum(each.standstill is not None for each in rows),
        failing=sum(each.error is not None for each in rows),
        racing=sum(left is not None and left < SHORT_HEADROOM for left in lefts),
        pages=pages,
        lag_ms=max((int(each.marks.lag_seconds * 1000) for each in rows), default=0),
        left_out=left_out,
        shared=int(shared),
        instance=instance,
    )


def of_shared_name(node: str) -> str:
    """What a person should know where two agents have one name."""
    return (
        f"another agent tells under the name {node!r}, too: each hides what the other says of"
        " itself and of its streams, and its silence; give each node's agent a name of its own"
        " (`node`, by default the host name)"
    )


@dataclass(slots=True)
class Teller:
    """Says it.

    Args:
        heartbeats: where.
        names: knows who else tells under this agent's name.
    """

    heartbeats: Heartbeats
    names: NameWatch
    _count: int = 0  # of pages
    _told: dict[int, int] = field(default_factory=dict)  # hash of its words by page, oldest first

    def tell(
        self, rows: Sequence[Progress], settings: AgentSettings, now_ms: int, left_out: int = 0
    ) -> str | None:
        """Send a heartbeat and some pages; why they did not arrive, None if they did.

        Args:
            rows: of all streams that the agent follows.
            settings: of the agent.
            now_ms: ms since the Unix epoch.
            left_out: directories that its rules leave alone.
        """
        try:
            self._tell_pages(rows, settings.node, now_ms)
            pages = self._count if len(self._told) == self._count else 0
            word = heartbeat_of(
                rows,
                settings,
                now_ms=now_ms,
                pages=pages,
                left_out=left_out,
                shared=self.names.shared(now_ms),
                instance=self.names.instance,
            )
            self.names.see(self.heartbeats.beat(word), word)
        except ColdstreamError as exc:
            return f"no heartbeat: {exc}"
        return None

    def _tell_pages(self, rows: Sequence[Progress], node: str, now_ms: int) -> None:
        count = page_count(len(rows))
        if count != self._count:
            self._count, self._told = count, {}
        pages = paged((word_of(row, now_ms) for row in rows), count)
        sums = {number: hash(tuple(words)) for number, words in pages.items()}
        changed = [number for number in pages if self._told.get(number) != sums[number]]
        most = _LATER if len(self._told) == count else _AT_FIRST
        order = {number: place for place, number in enumerate(self._told)}
        for number in sorted(changed, key=lambda each: order.get(each, -1))[:most]:
            data = pack(pages[number])
            self.heartbeats.tell(WordsPage(node, number, count, now_ms, data))
            self._told.pop(number, None)
            self._told[number] = sums[number]


@dataclass(slots=True)
class Beats:
    """Says it now and then, in a thread of its own: a table that hangs keeps no stream waiting.

    Args:
        teller: that says it.
        host: clocks of the machine.

    Attributes:
        unheard: why the last heartbeat did not arrive; empty if it did.
        shared: that another agent tells under the same name; empty while none does.
    """

    teller: Teller
    host: Host
    unheard: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    _at: float = float("-inf")
    _telling: bool = False  # one is on its way

    def beat(
        self,
        speaker: Workers,
        settings: AgentSettings,
        rows: Callable[[], Sequence[Progress]],
        left_out: int,
    ) -> None:
        """Have it said, if it is time to and nothing is on its way.

        Args:
            speaker: one thread.
            settings: of the agent, as they are now.
            rows: gives all streams that the agent follows.
            left_out: directories that its rules leave alone.
        """
        now = self.host.monotonic()
        if self._telling or now - self._at < settings.heartbeat_seconds:
            return
        self._at, self._telling = now, True
        try:
            speaker.submit(self._say, rows(), settings, left_out)
        except Exception as exc:  # noqa: BLE001 - no thread, for one
            self.unheard, self._telling = (f"no heartbeat: {exc!r}",), False

    def _say(self, rows: Sequence[Progress], settings: AgentSettings, left_out: int) -> None:
        try:
            why = self.teller.tell(rows, settings, self.host.now_ms(), left_out)
            self.unheard = () if why is None else (why,)
            known = self.teller.names.shared(self.host.now_ms())
            self.shared = (of_shared_name(settings.node),) if known else ()
        except Exception as exc:  # noqa: BLE001 - a thread's exception is lost otherwise
            self.unheard = (f"no heartbeat: {exc!r}",)
        finally:
            self._telling = False
