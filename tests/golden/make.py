"""Makes the golden files of version 1 of fragment and root.

Run once, when version 1 was made:  python -m tests.golden.make
It refuses to overwrite: a golden file is what a release wrote, for ever. A new version gets new
files and a new function here.
"""

from __future__ import annotations

from pathlib import Path

from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.testing.fragments import SyntheticFragment, build_fragment

HERE = Path(__file__).parent


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
        last_chunk=LastChunk(1030, 6),
        quarantine_key="rabbitmq/stream/__golden_1745252105682952932/metadata/quarantine.naïve",
    )


def main() -> None:
    """Write both files, unless they are there."""
    for name, data in (
        ("fragment-v1.bin", fragment_v1().data),
        ("root-v1.bin", root_v1().encode()),
        ("root-v1-empty.bin", Root(first_offset=1592, next_offset=1592).encode()),
    ):
        with (HERE / name).open("xb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
