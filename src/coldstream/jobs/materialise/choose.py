"""Which streams go into which table: the rules and the catalog, before a table is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from coldstream.errors import ColdstreamError, NotFoundError
from coldstream.jobs.materialise.engine import StreamNow
from coldstream.jobs.materialise.plan import BackfillWindow
from coldstream.jobs.materialise.rules import TableRule, rule_for
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.plans.probe import is_probe

NOTHING_UNREAD: Mapping[str, ColdstreamError] = MappingProxyType({})


@dataclass(slots=True)
class Meant:
    """The streams that a rule means.

    Attributes:
        streams: that a run looks at.
        names: directory names of all of them, also of those that no run can look at now.
    """

    streams: list[StreamNow] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Chosen:
    """What a run is about.

    Attributes:
        rules: by rule what it means; several of a table differ in `start` only.
        unread: streams that cannot be read, and why.
    """

    rules: dict[TableRule, Meant] = field(default_factory=dict)
    unread: dict[str, ColdstreamError] = field(default_factory=dict)

    def by_table(self) -> dict[str, list[tuple[TableRule, Meant]]]:
        """The rules of each table that has a stream to look at."""
        found: dict[str, list[tuple[TableRule, Meant]]] = {}
        for rule, meant in self.rules.items():
            if meant.streams:
                found.setdefault(rule.table, []).append((rule, meant))
        return found


def choose(
    rules: Sequence[TableRule],
    items: Iterable[CatalogItem],
    window: BackfillWindow,
    look: Callable[[CatalogItem], StreamNow],
    unread: Mapping[str, ColdstreamError] = NOTHING_UNREAD,
) -> Chosen:
    """The streams by the rule that they go by.

    One that was deleted is looked at once, by a run that goes on where the table ends: what the
    table has not of it is lost. A back-fill leaves it alone, and so its rows in the table.

    Args:
        rules: the first that matches counts.
        items: of the catalog.
        window: of the run.
        look: reads the manifest of a stream; its errors are the stream's.
        unread: streams of which not even the item can be read.

    Raises:
        NotFoundError: no stream matches.
    """
    chosen = Chosen(unread=dict(unread))
    for item in items:
        rule = rule_for(rules, item.name.queue or item.stream, item.name.super_stream)
        if rule is None or is_probe(item.stream):
            continue
        meant = chosen.rules.setdefault(rule, Meant())
        meant.names.append(item.stream)
        if item.state is StreamState.DELETED and window != BackfillWindow():
            continue
        try:
            meant.streams.append(look(item))
        except ColdstreamError as error:
            chosen.unread[item.stream] = error.located(stream=item.stream)
    for meant in chosen.rules.values():
        meant.names += unread  # each may be meant; a table knows whether it has begun with it
    if not chosen.unread and not any(meant.streams for meant in chosen.rules.values()):
        raise NotFoundError("no stream's name matches a rule")
    return chosen
