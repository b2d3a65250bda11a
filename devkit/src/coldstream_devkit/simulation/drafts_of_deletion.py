"""What drafts of the protocol did instead of a rule: deletion, retention, repair and rebuild.

See `drafts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from coldstream.agent.stream.follower import StreamFollower
from coldstream.manifest.entries import Entries, Entry
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import Root
from coldstream.plans.assemble import fragment_of
from coldstream.plans.collect import classify_root
from coldstream.plans.policy import PolicySet
from coldstream.plans.rebuild import KnownManifest, Rebuild, Row, ledger_of_keys
from coldstream.plans.retention import Retention, plan_retention
from coldstream.remote.context import Context
from coldstream.remote.roots import read_item
from coldstream.usecases import classify, delete_stream, rebuild, repair
from coldstream.usecases import retention as retaining
from coldstream_devkit.simulation.drafts import Draft

_sweep = delete_stream.sweep
_step = StreamFollower.step


# --- deletion ---


def _current_is_like_others(key: Any, *, version: int, current: bool) -> Any:
    """No node refers to the current root."""
    del current
    return classify_root(key, version=version, current=False)


def _sweep_with_the_tombstone(context: Context, *given: Any, **named: Any) -> Any:
    """The item goes with the last object."""
    swept = _sweep(context, *given, **named)
    if swept.state is delete_stream.SweepState.DONE:
        context.catalog.items.pop(swept.stream, None)  # type: ignore[attr-defined]  # in memory
    return swept


def _deleting_what_has_no_directory(self: StreamFollower, *given: Any, **named: Any) -> Any:
    """A directory that is gone means that its queue was deleted."""
    jobs = _step(self, *given, **named)
    if not self.log.directory.exists():
        delete_stream.delete_stream(
            self.context, self.log.stream, PolicySet(), now_ms=0, undelete_ms=0
        )
    return jobs


def _down_to_nothing(root: Root, rule: Any, **named: Any) -> Retention:
    """Retention by size that takes the last fragment too."""
    found = plan_retention(root, rule, **named)
    after = found.root
    if rule.max_bytes is None or after.total_size <= rule.max_bytes:
        return found
    empty = replace(after, first_offset=after.next_offset, entries=Entries(), head=None)
    return replace(found, root=empty)


# --- replacements and rebuilds ---


def _newest_epoch(entry: Entry, ledger: Ledger) -> int:
    """Whoever repairs works under the claim that there is."""
    del entry
    return ledger.epoch


def _whatever_its_floor(run: Any, known: Any, *, epoch: int, floor: int) -> Any:
    """A fragment of an epoch whose floor lies above it; its trailer alone would not pass."""
    return fragment_of(run, known, epoch=epoch, floor=min(floor, known.first_offset))


class _FromKeys(Rebuild):
    """A rebuild that knows nothing but LIST."""

    def __init__(self, prefix: str, stream: str, known: KnownManifest, **named: Any) -> None:
        self._given = (prefix, stream, known, named)
        super().__init__(prefix, stream, known, **named)

    def groups(self, pages: Iterable[Sequence[Row]]) -> Iterator[Node]:
        """As of any rebuild."""
        seen = list(pages)
        prefix, stream, known, named = self._given
        ledger = ledger_of_keys(seen, prefix, stream)
        known = replace(known, ledger=ledger, first_offset=None, sections=None)
        super().__init__(prefix, stream, known, **named)
        yield from super().groups(seen)


DRAFTS: Mapping[str, Draft] = MappingProxyType(
    {
        "item-refers": (
            "the item is a reference to its root",
            lambda: [(classify, "classify_root", _current_is_like_others)],
        ),
        "tombstone-table": (
            "no sweep by an item of another table",
            lambda: [(delete_stream, "own_item", read_item)],
        ),
        "repair-epoch": (
            "what is repaired carries the epoch that it had",
            lambda: [
                (repair, "_epoch_of", _newest_epoch),
                (repair, "fragment_of", _whatever_its_floor),
            ],
        ),
        "rebuild-newest-root": (
            "a rebuild takes ledger and first offset from the newest root, or the item",
            lambda: [(rebuild, "Rebuild", _FromKeys)],
        ),
        "rebuild-stops": (
            "a rebuild stops commits and deleters first",
            lambda: [(rebuild, "stop_others", lambda context, stream, item, token: item)],
        ),
        "tombstone-kept": (
            "a tombstone stays for ever",
            lambda: [(delete_stream, "sweep", _sweep_with_the_tombstone)],
        ),
        "tombstone-word": (
            "no agent deletes a stream because a directory is gone",
            lambda: [(StreamFollower, "step", _deleting_what_has_no_directory)],
        ),
        "last-fragment": (
            "retention keeps the last fragment",
            lambda: [(retaining, "plan_retention", _down_to_nothing)],
        ),
    }
)
