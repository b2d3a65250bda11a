"""Which streams are tiered, and how: rules over the names of virtual hosts and queues.

The first rule that matches decides; a stream that none matches is tiered with the agent's own
settings. A directory's name says nothing certain of its queue's name, so as long as that is not
settled, a rule that asks for a name decides nothing, nor does any rule behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from coldstream.agent.settings import AgentSettings
from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.plans.name_pattern import compiled, problem


class Undecided(Enum):
    """The type of `UNDECIDED`."""

    UNDECIDED = "undecided"


#: Nothing may be done with the stream yet: a rule asks for its queue's name, which nobody knows.
UNDECIDED = Undecided.UNDECIDED


@dataclass(frozen=True, slots=True)
class StreamRule:
    """What to do with the streams whose names match.

    Attributes:
        vhost: pattern of the whole virtual host's name; "" for any.
        name: pattern of the whole queue's name; "" for any.
        tier: whether the stream goes to the remote tier at all.
        flush: seconds that a chunk waits at most; None for the agent's own.
        fragment_size: bytes of a full fragment; None for the agent's own.
        upload_tail: whether the tail of a stream that the broker deletes is still uploaded.

    Raises:
        InvalidInputError: a pattern is none; names the pattern.
    """

    vhost: str = ""
    name: str = ""
    tier: bool = True
    flush: int | None = None
    fragment_size: int | None = None
    upload_tail: bool = True

    def __post_init__(self) -> None:
        for what, pattern in (("vhost", self.vhost), ("name", self.name)):
            trouble = problem(pattern) if pattern else None
            if trouble is not None:
                raise InvalidInputError(f"the pattern {what} = {pattern[:80]!r} {trouble}")

    @property
    def needs_a_name(self) -> bool:
        """Whether it can be told to match only of a stream whose name is known."""
        return bool(self.vhost or self.name)

    def matches(self, name: QueueName) -> bool:
        """Whether it is about streams of this name."""
        return all(
            not pattern or compiled(pattern).fullmatch(text) is not None
            for pattern, text in ((self.vhost, name.vhost), (self.name, name.queue))
        )


#: For a stream that no rule is about.
TIERED = StreamRule()


@dataclass(frozen=True, slots=True)
class Selection:
    """All rules, in the order in which they are asked.

    Attributes:
        rules: the first one that matches decides.
    """

    rules: tuple[StreamRule, ...] = ()

    def rule_for(self, name: QueueName | None) -> StreamRule | Undecided:
        """The rule for the stream of this name; `TIERED` if none is about it.

        Args:
            name: of its queue; None, or one without a queue, as long as it is not settled.

        Returns:
            `UNDECIDED` if a rule would have to know the name first.
        """
        known = name if name is not None and name.queue else None
        for rule in self.rules:
            if not rule.needs_a_name:
                return rule
            if known is None:
                return UNDECIDED
            if rule.matches(known):
                return rule
        return TIERED

    def check(self, base: AgentSettings) -> None:
        """See that every rule's settings make sense beside the agent's own.

        Raises:
            InvalidInputError: names the rule by its number, from 1 on.
        """
        for number, rule in enumerate(self.rules, 1):
            try:
                settings_for(rule, base)
            except InvalidInputError as exc:
                raise InvalidInputError(f"rule {number} of [[streams]]: {exc.reason}") from exc


def settings_for(rule: StreamRule, base: AgentSettings) -> AgentSettings:
    """The agent's settings for a stream of this rule; `base` itself if the rule changes nothing.

    Raises:
        InvalidInputError: a value is outside its limits, such as a fragment that is larger than
            the agent's memory.
    """
    if rule.flush is None and rule.fragment_size is None and rule.upload_tail == base.upload_tail:
        return base
    return replace(
        base,
        flush_ms=base.flush_ms if rule.flush is None else rule.flush * 1000,
        upload_tail=rule.upload_tail,
        target_size=base.target_size if rule.fragment_size is None else rule.fragment_size,
    )
