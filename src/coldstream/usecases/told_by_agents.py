"""What the agents of a cluster say of its streams, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coldstream.errors import CorruptDataError
from coldstream.names import made_ns
from coldstream.plans.heartbeats import FORGOTTEN_MS, Heartbeat, is_silent
from coldstream.plans.stream_words import StreamWord, page_of, unpack
from coldstream.ports import Heartbeats


@dataclass(frozen=True, slots=True)
class Said:
    """What one agent has said of a stream.

    Attributes:
        node: name of its machine.
        at_ms: when, ms since the Unix epoch by its clock.
        silent: whether the agent has not been heard of for too long.
        word: of the stream.
    """

    node: str
    at_ms: int
    silent: bool
    word: StreamWord

    def lag_ms(self, next_offset: int, now_ms: int) -> int:
        """For how long what is not published waits by now, ms.

        Args:
            next_offset: of the manifest, which may have moved meanwhile.
            now_ms: ms since the Unix epoch.
        """
        committed, published = self.word.offsets[0], self.word.offsets[-1]
        if next_offset >= max(committed, self.word.local_end):
            return 0
        stands = next_offset <= published
        return self.word.lag_ms + (max(0, now_ms - self.at_ms) if stands else 0)

    def stuck_since_ms(self, next_offset: int) -> int | None:
        """Since when the stream has made no progress; None if it has meanwhile."""
        stands = next_offset <= self.word.offsets[-1] or self.unproved_ms(next_offset, self.at_ms)
        return self.word.stuck_since_ms if self.word.stuck_since_ms and stands else None

    def unproved_ms(self, next_offset: int, now_ms: int) -> int:
        """For how long it has had messages that its broker does not prove by now, ms; 0 for none.

        Args:
            next_offset: of the manifest: another node's agent may have published them.
            now_ms: ms since the Unix epoch.
        """
        if not self.word.unproved_ms or next_offset >= self.word.local_end:
            return 0
        return self.word.unproved_ms + max(0, now_ms - self.at_ms)


@dataclass(frozen=True, slots=True)
class AgentsTold:
    """What all of them say.

    Attributes:
        said: by stream; first what counts most: the writer's node, then who has most.
        complete: whether every agent lives, has a name of its own and has told of all its streams,
            so that a stream of which none of them tells is on no broker any more, or left out by
            their rules.
        left_out: directories that rules leave out, at most so many at one agent.
        shared: names under which more than one agent tells: what was told last hides the others.
        troubles: what could not be read.
        since_ms: when the oldest of what they say was said, ms since the Unix epoch.
    """

    said: Mapping[str, Sequence[Said]]
    complete: bool
    troubles: Sequence[CorruptDataError]
    since_ms: int = 0
    left_out: int = 0
    shared: Sequence[str] = ()

    def of(self, stream: str) -> Said | None:
        """What counts most of a stream; None if nobody tells of it."""
        return next(iter(self.said.get(stream, ())), None)

    def is_gone(self, stream: str) -> bool | None:
        """Whether no broker has the stream any more; None if agents cannot say.

        Of one that was made since, by the time in its name, none of them could have told, and of
        one that a rule leaves out none of them tells.
        """
        if stream in self.said:
            return False
        if not self.complete or self.left_out:
            return None
        return made_ns(stream) // 1_000_000 < self.since_ms


def told_by_agents(heartbeats: Heartbeats, *, now_ms: int, stream: str | None = None) -> AgentsTold:
    """Read what agents say: of one stream, or of all.

    Args:
        heartbeats: where.
        now_ms: ms since the Unix epoch.
        stream: read only the pages that may name it.

    Raises:
        UnavailableError, PermissionDeniedError: nothing can be read.
    """
    said: dict[str, list[Said]] = {}
    troubles: list[CorruptDataError] = []
    agents: list[Heartbeat] = []
    for each in heartbeats.all():
        if isinstance(each, CorruptDataError):
            troubles.append(each)
        elif now_ms - each.at_ms < FORGOTTEN_MS:
            agents.append(each)
    for agent in agents:
        count, number = agent.pages, None
        if count and stream is not None:
            number = page_of(stream, count)
        for page in heartbeats.told(agent.node, count, number) if count else ():
            try:
                if isinstance(page, CorruptDataError):
                    raise page
                words = unpack(page.data)
            except CorruptDataError as exc:
                troubles.append(exc)
                continue
            for word in words:
                if stream in (None, word.stream):
                    found = Said(agent.node, page.at_ms, is_silent(agent, now_ms), word)
                    said.setdefault(word.stream, []).append(found)
    for rows in said.values():
        rows.sort(key=lambda row: (row.silent, not row.word.writer, -row.word.offsets[0], row.node))
    heard = all(each.pages and not is_silent(each, now_ms) for each in agents)
    since_ms = min((each.at_ms for each in agents), default=0)
    left_out = max((each.left_out for each in agents), default=0)
    shared = sorted(each.node for each in agents if each.shared and not is_silent(each, now_ms))
    complete = bool(agents) and heard and not troubles and not shared
    return AgentsTold(said, complete, troubles, since_ms, left_out, shared)
