"""What is left of a stream's metadata before a rebuild: the item, the roots, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from coldstream.errors import CorruptDataError, NotFoundError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.names import data_prefix
from coldstream.plans.key_columns import KeyReader
from coldstream.plans.rebuild_ledger import Witnesses
from coldstream.plans.rebuild_trees import Tree, asked
from coldstream.plans.reconcile import ListedRoot, preferred, ranked
from coldstream.remote.context import Context
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import RootCache, describes, root_at
from coldstream.usecases.evidence import uploaded_floors
from coldstream.usecases.rebuild_objects import floors
from coldstream.usecases.references import list_roots

#: Roots of one version that are compared.
_SAME = 32


@dataclass(slots=True)
class KnownStream:
    """What is known of a stream.

    Attributes:
        stream: directory name.
        item: what the table has; None if it has nothing.
        own: whether the item is of this table and names a root.
        root: the newest that can be read; None if none can.
        root_key: its key, "" if there is none.
        damaged: keys of newer roots that cannot be read.
        versions: of all roots in the bucket.
        ledger: as known or guessed.
        first_offset: of the manifest; None if nobody knows it.
        next_offset: that the manifest has reached at least; None if nobody knows it.
        guessed: whether some of the ledger was guessed from trailers or keys.
        disputed: epochs about whose floor trailers disagree.
    """

    stream: str
    item: CatalogItem | None
    own: bool
    root: Root | None = None
    root_key: str = ""
    damaged: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)
    first_offset: int | None = None
    next_offset: int | None = None
    guessed: bool = False
    disputed: tuple[int, ...] = ()
    _others: list[str] = field(default_factory=list)
    _trees: list[Tree] = field(default_factory=list)

    def tree(self, context: Context, number: int) -> Tree | None:
        """The tree of a number, the newest first; None if there are no more that can be read."""
        stream = self.stream
        if not self._trees and self.root is not None:
            certain = self.own and self.item is not None and self.root_key == self.item.root_key
            self._trees.append(Tree(self.root, context.fetch(stream), self.ledger, certain))
        while len(self._trees) <= number and self._others:
            root = _parsed(context, self._others.pop(0))
            if root is not None:
                self._trees.append(Tree(root, context.fetch(stream), self.ledger, certain=False))
        return self._trees[number] if number < len(self._trees) else None


def known_state(
    context: Context, stream: str, item: CatalogItem | None, *, by_trailers: bool
) -> KnownStream:
    """Find out what is known of a stream.

    Ledger, first offset and next offset come from the item, if it is of this table: it has them
    even where the newest root is damaged. Otherwise they come from the newest root that can be
    read, or from the item of a table before, whichever is of the higher version; what later epochs
    have claimed is read from trailers. Without either, all of it is.

    Args:
        context: where.
        stream: directory name.
        item: what the table has.
        by_trailers: whether trailers are read; else a ledger that is lost is guessed from keys.

    Raises:
        CorruptDataError: there are fragments of more epochs than any stream has.
        UnavailableError: S3 or DynamoDB did not answer.
    """
    roots = list(list_roots(context, stream))
    own = bool(item and item.root_key and item.table_id == context.catalog.table_id())
    state = KnownStream(stream, item, own, versions=tuple(each.key.version for each in roots))
    _find_root(context, state, roots)
    root = state.root
    if own and item is not None:
        state.ledger = item.ledger
        state.first_offset, state.next_offset = item.first_offset, item.next_offset
        return state
    source: CatalogItem | Root | None = root
    if item is not None and item.root_key and (root is None or item.version > root.version):
        source = item
    if source is not None:
        state.ledger = source.ledger
        state.first_offset, state.next_offset = source.first_offset, source.next_offset
    _guess(context, stream, state, by_trailers=by_trailers)
    return state


def _find_root(context: Context, state: KnownStream, roots: Sequence[ListedRoot]) -> None:
    """The item's own root, or else the newest one that can be read; and those behind it."""
    damaged: list[str] = []
    order: list[str] = []
    if state.own and state.item is not None:
        item = state.item
        found = _parsed(context, item.root_key)
        if found is not None and describes(item, found):
            state.root, state.root_key = found, item.root_key
        else:
            damaged.append(item.root_key)
        # Those of a higher version have not landed.
        roots = [r for r in roots if r.key.version <= item.version and r.path != item.root_key]
    for same in ranked(roots):
        rest = [each.path for each in same]
        if state.root is None:
            read = [(_parsed(context, each.path), each) for each in same[:_SAME]]
            good = [(root, each) for root, each in read if root is not None]
            uploaded = uploaded_floors(context, state.stream, [root for root, _ in good])
            for best, each in preferred(good, state.item, uploaded)[:1]:
                state.root, state.root_key = best, each.path
            damaged += [each.path for root, each in read if root is None]
        order += [path for path in rest if path != state.root_key and path not in damaged]
    state.damaged = tuple(damaged)
    state._others = [order[number] for number in asked(len(order))]


def _parsed(context: Context, path: str) -> Root | None:
    try:
        return root_at(context.store, path)
    except (CorruptDataError, NotFoundError):
        return None


def _guess(context: Context, stream: str, state: KnownStream, *, by_trailers: bool) -> None:
    """What epochs above those that are known have claimed, by their fragments."""
    base = state.ledger
    witnesses = Witnesses(KeyReader(context.prefix, stream), above=base.epoch)
    for page in context.pages(data_prefix(context.prefix, stream)):
        witnesses.add(page)
    said = floors(context, witnesses.asked) if by_trailers else {}
    state.ledger, state.disputed = witnesses.ledger(said, base)
    new = [claim.floor for claim in state.ledger.claims if claim.epoch > base.epoch]
    state.guessed = bool(new) or state.next_offset is None
    if new and state.first_offset is not None and state.next_offset is not None:
        # A claim has cut off what lay above its floor; where it began anew, it began there.
        state.next_offset = min([state.next_offset, *new])
        state.first_offset = min(state.first_offset, state.next_offset)


def fresh(context: Context) -> Context:
    """The same without what the process remembers: it need not be in the bucket any more."""
    return replace(context, nodes=NodeCache(), roots=RootCache())
