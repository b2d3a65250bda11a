"""How the objects of one stream are fetched: groups of its manifests, and fragments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coldstream.manifest.tree import Fetch
from coldstream.ports import ObjectStore
from coldstream.reader.budget import PROCESS_BUDGET, MemoryBudget
from coldstream.reader.fragments import Fragments
from coldstream.reader.open_fragments import OpenFragments
from coldstream.reader.policy import answering
from coldstream.reader.settings import ReaderSettings
from coldstream.reader.shared import Place, SharedRanges
from coldstream.remote.nodes import PROCESS_NODES, NodeCache, fetcher


@dataclass(frozen=True, slots=True)
class StreamObjects:
    """Of one stream, under whatever manifest; safe between threads.

    Attributes:
        store: what gives ranges of its fragments under the settings' policy.
        groups: gives a group.
        fragments: gives a fragment, or part of one.
        settings: sizes and numbers of requests.
        budget: bytes that fetched data may hold.
        place: makes the place of one more reader; what was fetched is shared by all of a stream.
    """

    store: ObjectStore
    groups: Fetch
    fragments: Fragments
    settings: ReaderSettings
    budget: MemoryBudget
    place: Callable[[], Place]

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        prefix: str,
        stream: str,
        settings: ReaderSettings | None = None,
        *,
        budget: MemoryBudget = PROCESS_BUDGET,
        nodes: NodeCache = PROCESS_NODES,
        opened: OpenFragments | None = None,
    ) -> StreamObjects:
        """The objects of a stream by its directory name; `prefix` is of all keys, ends in "/"."""
        settings = settings or ReaderSettings()
        groups = fetcher(store, nodes, prefix, stream)
        asked = answering(store, settings.policy)
        fragments = Fragments(asked, prefix, stream, settings, opened)
        # Readers share what they fetch by the store that they were given, whatever their policies.
        place = partial(SharedRanges.of(budget).place, store, prefix, stream, settings.policy)
        return cls(asked, groups, fragments, settings, budget, place)
