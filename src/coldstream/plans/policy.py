"""The operator's rules: how long a stream is kept in the remote tier, and what must not be touched.

As with RabbitMQ's own policies, one rule applies as a whole: of all rules that match a stream, the
one with the highest priority, and of equals the first by name. It alone says how long and how much,
even if it says nothing, so a rule of high priority without limits keeps its streams for ever.

    hold         any matching rule holds, whatever its priority
    consolidate  the first matching rule, by priority, that says something; true if none does

Patterns must match whole names. A stream whose names nobody has recorded (its item was lost, and no
agent has said them again) matches only rules that do not ask for them; but nobody can say then that
a rule which asks does not hold it, or keep it for longer. So such a stream is `unsure`, and nothing
of it may go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coldstream.errors import InvalidInputError
from coldstream.manifest.catalog import QueueName
from coldstream.names import MAX_NAME
from coldstream.plans.name_pattern import compiled, problem

MAX_RULES = 2000
FEWER_RULES = (
    "let one rule speak of many streams by a pattern, also of a legal hold: "
    '{"name": "case-17", "queue": "audit-.*", "hold": true} in `coldstream retention rules --set`'
)
MAX_LIMIT = 2**63 - 1
_PRIORITIES = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Patterns are regular expressions (see `name_pattern`), "" where any name will do.

    Attributes:
        name: unique; up to 255 printable characters.
        priority: the greater, the stronger.
        cluster: of the cluster's name.
        vhost: of the virtual host.
        queue: of the stream's queue name.
        directory: of the stream's directory name.
        max_age_ms: what is older goes; whole seconds. None for no such limit.
        max_bytes: what is beyond goes, the oldest first. None for no such limit.
        consolidate: whether small fragments are joined; None says nothing.
        hold: whether nothing of the stream may go at all (legal hold).

    Raises:
        InvalidInputError: a field breaks its rule; the message names rule and field.
    """

    name: str
    priority: int = 0
    cluster: str = ""
    vhost: str = ""
    queue: str = ""
    directory: str = ""
    max_age_ms: int | None = None
    max_bytes: int | None = None
    consolidate: bool | None = None
    hold: bool = False

    def __post_init__(self) -> None:
        """See that the rule can be obeyed."""
        if not 0 < len(self.name) <= MAX_NAME or not self.name.isprintable():
            raise InvalidInputError(f"a rule's name has 1 to 255 characters: {self.name[:80]!r}")
        for field, pattern in self.patterns():
            trouble = problem(pattern)
            if trouble is not None:
                raise refusal(self.name, field, trouble)
        if self.priority not in _PRIORITIES:
            raise refusal(self.name, "priority", "is out of range")
        for field, limit in (("max-age", self.max_age_ms), ("max-length-bytes", self.max_bytes)):
            if limit is not None and not 0 < limit <= MAX_LIMIT:
                raise refusal(self.name, field, "must be greater than 0 and below 2^63")
        if self.max_age_ms is not None and self.max_age_ms % 1000:
            raise refusal(self.name, "max-age", "must be whole seconds")

    def patterns(self) -> Iterator[tuple[str, str]]:
        """Names of the fields that hold patterns, and the patterns."""
        yield "cluster", self.cluster
        yield "vhost", self.vhost
        yield "queue", self.queue
        yield "directory", self.directory

    def matches(self, stream: str, name: QueueName) -> bool:
        """Whether the rule is about this stream.

        Raises:
            InvalidInputError: a name is longer than names can be.
        """
        for (field, pattern), text in zip(
            self.patterns(), (name.cluster, name.vhost, name.queue, stream), strict=True
        ):
            if len(text) > MAX_NAME:
                raise InvalidInputError(f"{field} has more than 255 characters", stream=stream[:80])
            if pattern and not (text and compiled(pattern).fullmatch(text)):
                return False
        return True

    def may_match(self, stream: str, name: QueueName) -> bool:
        """Whether the rule would match if the names that nobody has recorded were the right ones.

        Raises:
            InvalidInputError: a name is longer than names can be.
        """
        asked = replace(
            self,
            cluster=self.cluster if name.cluster else "",
            vhost=self.vhost if name.vhost else "",
            queue=self.queue if name.queue else "",
        )
        return asked.matches(stream, name)


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All rules of a cluster.

    Raises:
        InvalidInputError: two rules of one name, or too many.
    """

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        """See that the rules can live together."""
        if len(self.rules) > MAX_RULES:
            raise InvalidInputError(
                f"{len(self.rules)} rules are more than {MAX_RULES}", remedy=FEWER_RULES
            )
        for name, count in Counter(rule.name for rule in self.rules).items():
            if count > 1:
                raise refusal(name, "name", f"is that of {count} rules")


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds for one stream.

    Attributes:
        max_age_ms: as in `Rule`, of the rule that won.
        max_bytes: as in `Rule`, of the rule that won.
        consolidate: whether small fragments are joined.
        hold: whether nothing of it may go.
        retention_rule: name of the rule that won, "" if none matches.
        hold_rules: names of all rules that hold it, sorted.
        unsure_holds: names of rules that may hold it, sorted: a name they ask for is not recorded.
        unsure_rules: names of rules that would apply instead of `retention_rule` if they matched,
            sorted; a name they ask for is not recorded.
    """

    max_age_ms: int | None = None
    max_bytes: int | None = None
    consolidate: bool = True
    hold: bool = False
    retention_rule: str = ""
    hold_rules: tuple[str, ...] = ()
    unsure_holds: tuple[str, ...] = ()
    unsure_rules: tuple[str, ...] = ()

    @property
    def unsure(self) -> bool:
        """Whether nobody can say how long the stream is kept."""
        return bool(self.unsure_holds or self.unsure_rules)

    @property
    def retains(self) -> bool:
        """Whether retention must let nothing go, whatever the limits are."""
        return self.hold or self.unsure

    @property
    def may_be_held(self) -> bool:
        """Whether a legal hold is on the stream, or may be."""
        return self.hold or bool(self.unsure_holds)


def effective(policies: PolicySet, stream: str, name: QueueName) -> Effective:
    """What the rules say of one stream.

    Args:
        policies: all rules.
        stream: directory name.
        name: of its queue, as far as it is known.

    Raises:
        InvalidInputError: a name is longer than names can be.
    """

    def rank(rule: Rule) -> tuple[int, str]:
        return -rule.priority, rule.name

    matching = sorted((rule for rule in policies.rules if rule.matches(stream, name)), key=rank)
    unsure: list[Rule] = []
    if not (name.cluster and name.vhost and name.queue):
        unsure = [
            rule for rule in policies.rules if rule not in matching and rule.may_match(stream, name)
        ]
    winner = matching[0] if matching else None
    holding = tuple(sorted(rule.name for rule in matching if rule.hold))
    said = (rule.consolidate for rule in matching if rule.consolidate is not None)
    return Effective(
        max_age_ms=winner.max_age_ms if winner else None,
        max_bytes=winner.max_bytes if winner else None,
        consolidate=next(said, True),
        hold=bool(holding),
        retention_rule=winner.name if winner else "",
        hold_rules=holding,
        unsure_holds=tuple(sorted(rule.name for rule in unsure if rule.hold)),
        unsure_rules=tuple(
            sorted(rule.name for rule in unsure if winner is not None and rank(rule) < rank(winner))
        ),
    )


def refusal(rule: str, field: str, trouble: str) -> InvalidInputError:
    """The error about a field of a rule."""
    return InvalidInputError(f"rule {rule[:80]!r}, field {field!r}: {trouble}")
