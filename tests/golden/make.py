"""Makes the golden files of fragment, root, groups, and of the records of quarantine and erasure.

Run once for each, when its version was made:  python -m tests.golden.make NAME...
It refuses to overwrite: a golden file is what a release wrote, for ever. A new version gets new
files and a new function here. The roots of versions 1 and 2 were made by releases that wrote
them; what they say is here still.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.erasure import ErasureRecord
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.node import Node
from coldstream.manifest.quarantine import Dropped, ListedData, QuarantineRecord, Timeline
from coldstream.manifest.queue_name import QueueName
from coldstream.manifest.root import Head, LastChunk, Root
from coldstream.osiris.blank import Erased
from coldstream_devkit.fragments import SyntheticFragment, build_fragment

HERE = Path(__file__).parent
NODE_FILES = {
    EntryKind.GROUP: "group-v1.bin",
    EntryKind.KILO_GROUP: "kgroup-v1.bin",
    EntryKind.MEGA_GROUP: "mgroup-v1.bin",
}
RECORD_FILE = "quarantine-v1.record"
ERASURE_FILE = "erasure-v1.record"


def fragment_v1() -> SyntheticFragment:
    """Four chunks of two epochs, with a clock that falls."""
    return build_fragment(
        1000,
        1035,
        stream="__golden_1745252105682952932",
        epoch=7,
        floor=990,
        uid=0x0123456789ABCDEF,
        chunk_epochs=[5, 5, 6],
        timestamps=[1_700_000_000_000, 1_700_000_000_500, 1_699_999_999_000, 1_700_000_001_000],
    )


def root_v1() -> Root:
    """Every field that is not zero: claims, a quarantine key, a hole, a group, a fragment."""
    return Root(
        first_offset=40,
        next_offset=1035,
        epoch=7,
        version=12,
        ledger=Ledger.of([(1, 0), (5, 900), (7, 990)]),
        entries=Entries.of(
            [
                Entry(0, 900, 1000, 2000, EntryKind.GROUP, 2**40, 3, 1, 0xAAAA),
                Entry(900, 990, 2000, 2000, EntryKind.HOLE, 0, 0, 5, 0xBBBB),
                Entry(990, 1000, -5, 2500, EntryKind.FRAGMENT, 999, 10, 7, 0xCCCC),
                Entry(1000, 1035, 2400, 2**63 - 1, EntryKind.FRAGMENT, 1234, 35, 7, 2**64 - 1),
            ]
        ),
        head=Head(min_timestamp=1000, max_timestamp=2000),
        last_chunk=LastChunk(1030, 6),
        quarantine_key="rabbitmq/stream/__golden_1745252105682952932/metadata/quarantine.naïve",
    )


def root_v2() -> Root:
    """The same with names."""
    return replace(root_v1(), name=QueueName("rabbit@naïve", "/", "größe 😀"))


def root_v3() -> Root:
    """The same of a partition of a super stream."""
    name = QueueName("rabbit@naïve", "/", "größe 😀-0", "größe 😀", "ключ")
    return replace(root_v1(), name=name)


def nodes_v1() -> list[Node]:
    """A group with a hole, a kilo-group over it, and a mega-group over that."""
    group = Node(
        EntryKind.GROUP,
        0x1111,
        Entries.of(
            [
                Entry(0, 900, 1000, 2000, EntryKind.FRAGMENT, 2**26, 900, 1, 0xAAAA),
                Entry(900, 990, 2000, 2000, EntryKind.HOLE, 0, 0, 5, 0xBBBB),
                Entry(990, 1000, -5, 2500, EntryKind.FRAGMENT, 999, 10, 7, 0xCCCC),
            ]
        ),
    )
    kilo = Node(EntryKind.KILO_GROUP, 0x2222, Entries.of([group.entry()]))
    return [group, kilo, Node(EntryKind.MEGA_GROUP, 2**64 - 1, Entries.of([kilo.entry()]))]


def record_v1() -> QuarantineRecord:
    """Two lost timelines, one with a fragment that was only listed, and one that was given up."""
    under = "rabbitmq/stream/__golden_1745252105682952932"
    return QuarantineRecord(
        timelines=(
            Timeline(
                epoch=7,
                floor=960,
                next_offset=1035,
                root_key=f"{under}/metadata/root.0000000005.000000000012.000000000000aaaa.manifest",
                created_ms=1_763_000_000_000,
                reason="the log of epoch 7 has chunk 960..970 of epoch 7 – naïve",
                listed=(
                    ListedData(
                        f"{under}/data/00000000000000001000-00000000000000001035"
                        ".0000000005.000000000000bbbb.fragment",
                        1234,
                    ),
                ),
            ),
            Timeline(epoch=8, floor=0, next_offset=980, complete=False),
        ),
        dropped=(Dropped(epoch=5, floor=900, until_ms=1_763_000_000_001),),
    )


def erasure_v1() -> ErasureRecord:
    """Rows of two epochs and one without a chunk."""
    erased = Erased.of([(1000, 1003, 5), (1020, 1021, 6), (40, 50, 0)])
    return ErasureRecord(erased, 1_763_000_000_000, "ticket 4711 – naïve")


def files() -> dict[str, bytes]:
    """What every golden file holds, by its name."""
    return {
        "fragment-v1.bin": fragment_v1().data,
        "root-v3.bin": root_v3().encode(),
        RECORD_FILE: record_v1().encode(),
        ERASURE_FILE: erasure_v1().encode(),
        "root-v3-empty.bin": Root(first_offset=1592, next_offset=1592).encode(),
        **{NODE_FILES[node.kind]: node.encode(catalog_version=12) for node in nodes_v1()},
    }


def main(*wanted: str) -> None:
    """Write the files of these names; fail if one is there."""
    for name in wanted:
        with (HERE / name).open("xb") as file:
            file.write(files()[name])


if __name__ == "__main__":
    main(*sys.argv[1:])
