"""Every small manifest tree, and the flat list of fragments and holes that it stands for.

A shape is what a root may name: kilo-groups, then groups, then leaves. Over n leaves there are 3**n
shapes of at most two levels of groups. Nothing here asks the product what is alive: a leaf is, if
it ends above the first offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from typing import Any

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.root import Head, LastChunk, Root

PREFIX, STREAM = "rabbitmq/", "__orders_1"
#: Where the first leaf begins.
BASE = 2
#: A leaf is its number; a group is a tuple of leaves, a kilo-group is a tuple of groups.
Nested = Any
Shape = tuple[Nested, ...]


def parts(sequence: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """All ways to cut a sequence into neighbouring parts, none of them empty."""
    if not sequence:
        yield ()
    for end in range(1, len(sequence) + 1):
        for rest in parts(sequence[end:]):
            yield (tuple(sequence[:end]), *rest)


def shapes(leaves: int, *, levels: int = 2) -> Iterator[Shape]:
    """All roots over so many leaves, with at most so many levels of groups."""
    numbers = tuple(range(leaves))
    for kilo in range(leaves + 1 if levels > 1 else 1):
        for group in range(kilo, leaves + 1 if levels > 0 else 1):
            for low in parts(numbers[:kilo]):
                for high in parts(low):
                    for middle in parts(numbers[kilo:group]):
                        yield (*high, *middle, *numbers[group:])


def leaf(
    first: int, length: int = 1, *, hole: bool = False, size: int = 1, at: int = 5, **more: int
) -> Entry:
    """A fragment or a hole; its chunks are one ms apart, so that the extremes differ."""
    uid, epoch = more.get("uid", 100 + first), more.get("epoch", 1)
    if hole:
        return Entry(first, first + length, at, at, EntryKind.HOLE, 0, 0, epoch, uid)
    return Entry(first, first + length, at - 1, at, EntryKind.FRAGMENT, size, length, epoch, uid)


def row(
    lengths: Iterable[int], holes: Iterable[bool] = (), sizes: Iterable[int] = ()
) -> list[Entry]:
    """Leaves that join, with a size of its own each."""
    done: list[Entry] = []
    lengths, kinds, bytes_of = list(lengths), list(holes), list(sizes)
    first = BASE
    for number, length in enumerate(lengths):
        done.append(
            leaf(
                first,
                length,
                hole=kinds[number] if kinds else False,
                size=bytes_of[number] if bytes_of else 2**number,
                at=20 + 3 * number,
            )
        )
        first += length
    return done


@dataclass
class Tree:
    """A root with its groups, and the flat list of all leaves, dead ones too."""

    root: Root
    flat: list[Entry]
    nodes: dict[int, Node] = field(default_factory=dict)
    fetched: list[Entry] = field(default_factory=list)

    @property
    def live(self) -> list[Entry]:
        """What ends above the first offset."""
        return [each for each in self.flat if each.next_offset > self.root.first_offset]

    def fetch(self, entry: Entry) -> Node:
        """A group; a dead one may be gone, so nobody may ask for it."""
        assert entry.next_offset > self.root.first_offset, "a dead group was fetched"
        self.fetched.append(entry)
        node = self.nodes[entry.uid]
        assert node.entry() == entry
        return node

    def below(self, entry: Entry) -> list[Entry]:
        """All leaves below an entry, dead ones too."""
        return [
            each
            for each in self.flat
            if entry.first_offset <= each.first_offset < entry.next_offset
        ]

    def after(self, root: Root, nodes: Iterable[Node]) -> Tree:
        """What an edit has made of it."""
        return Tree(root, self.flat, {**self.nodes, **{node.uid: node for node in nodes}})


def wrapped(nested: Nested, flat: Sequence[Entry], nodes: dict[int, Node], uids: Any) -> Entry:
    """The entry of a leaf or group; a group's node goes to `nodes`."""
    if isinstance(nested, int):
        return flat[nested]
    children = [wrapped(each, flat, nodes, uids) for each in nested]
    kind = EntryKind(children[0].kind.level + 1)
    node = Node(kind, next(uids), Entries.of(children))
    nodes[node.uid] = node
    return node.entry()


def tree(shape: Shape, flat: Sequence[Entry], *, dead: int = 0) -> Tree:
    """The tree of a shape, after retention has taken `dead` leaves of its first entry."""
    nodes: dict[int, Node] = {}
    uids = count(1000)
    entries = [wrapped(each, flat, nodes, uids) for each in shape]
    return Tree(rooted(entries, flat, flat[dead].first_offset if flat else BASE), [*flat], nodes)


def rooted(entries: Sequence[Entry], flat: Sequence[Entry], first: int) -> Root:
    """A root over entries, with all sums made from the leaves."""
    alive = [each for each in flat if each.next_offset > first]
    gone = [each for each in flat if each.next_offset <= first]
    head = None
    if entries and entries[0].kind.level:
        head = Head(
            alive[0].min_timestamp,
            alive[0].max_timestamp,
            sum(each.size for each in gone),
            len(gone),
        )
    next_offset = flat[-1].next_offset if flat else first
    return Root(
        first,
        next_offset,
        epoch=1,
        version=5,
        ledger=Ledger.of([(1, BASE)]),
        entries=Entries.of(entries),
        head=head,
        last_chunk=LastChunk(next_offset - 1, 1) if flat else None,
    )


def size_of(nested: Nested) -> int:
    """How many leaves lie below."""
    return 1 if isinstance(nested, int) else sum(map(size_of, nested))


def trees(flat: Sequence[Entry], *, levels: int = 2) -> Iterator[Tree]:
    """Every tree over these leaves, and with each number of dead ones that a root may have."""
    for shape in shapes(len(flat), levels=levels):
        for dead in range(size_of(shape[0]) if shape else 1):
            yield tree(shape, flat, dead=dead)


def masks(number: int) -> Iterator[tuple[bool, ...]]:
    """Every choice among so many."""
    yield from product((False, True), repeat=number)


def nested_of(root: Root, nodes: dict[int, Node]) -> list[Any]:
    """A root's entries as nested lists of the uids of its leaves."""

    def opened(entry: Entry) -> Any:
        if not entry.kind.level:
            return entry.uid
        return [opened(each) for each in nodes[entry.uid].entries]

    return [opened(each) for each in root.entries]


def with_first(made: Tree, first: int) -> Tree:
    """The same tree with another first offset, also in the middle of a leaf."""
    entries = list(made.root.entries)
    return replace(made, root=rooted(entries, made.flat, first))
