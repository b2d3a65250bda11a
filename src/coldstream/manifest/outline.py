"""What a catalog item repeats of its root: the entries of the oldest kilo- and mega-groups.

A root is fetched by its item, and of a long stream it says of nearly all offsets only which
kilo-group they lie under. A reader that finds that in the item, which it has read anyway, needs no
root to get to its first byte. A petabyte in fragments of 64 MiB has 15 of these entries.

As text, because events of the table and its answers give bytes differently: base64 of

    ┌──────────────┬───────────────────┐
    │ uid of root  │ entries           │
    │ u64          │ 56 B each         │
    └──────────────┴───────────────────┘

Whoever moves an item and does not know of outlines leaves the old one there; then it has the uid of
another root, and says nothing.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from coldstream.errors import CorruptDataError
from coldstream.manifest.entries import ENTRY_SIZE, Entries
from coldstream.manifest.root import Root

_UID = struct.Struct(">Q")
#: Entries that are repeated: four pebibytes of fragments of 64 MiB, and 5 KB of an item.
MOST = 64
#: Characters of any outline; another release may repeat more.
MAX_TEXT = 2**17
_LOWEST = 2


@dataclass(frozen=True, slots=True)
class Outline:
    """The oldest entries of a root; all of kilo- or mega-groups.

    Attributes:
        uid: of the root, 0 for none.
        entries: its first ones.
    """

    uid: int = 0
    entries: Entries = field(default_factory=Entries)

    @classmethod
    def of(cls, uid: int, root: Root) -> Outline:
        """That of a root that lies under this uid."""
        levels = root.entries.part(0, min(MOST, len(root.entries))).levels()
        upper = sum(1 for _ in takewhile(lambda level: level >= _LOWEST, levels))
        return cls(uid, root.entries.part(0, upper))

    @classmethod
    def parse(cls, text: str) -> Outline:
        """What `encode` gives.

        Raises:
            CorruptDataError: it is none.
        """
        if len(text) > MAX_TEXT:
            raise CorruptDataError(f"an outline of {len(text)} characters")
        try:
            data = base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError) as exc:
            raise CorruptDataError("an outline that is no base64") from exc
        if len(data) < _UID.size or (len(data) - _UID.size) % ENTRY_SIZE:
            raise CorruptDataError("an outline that is cut")
        (uid,) = _UID.unpack_from(data)
        entries = Entries(data[_UID.size :])
        levels = entries.levels()
        if any(level < _LOWEST for level in levels) or any(a < b for a, b in pairwise(levels)):
            raise CorruptDataError("an outline of other entries than a root begins with")
        return cls(uid, entries)

    def encode(self) -> str:
        """As the catalog's table holds it."""
        return base64.b64encode(_UID.pack(self.uid) + bytes(self.entries)).decode()

    def begins(self, root: Root) -> bool:
        """Whether a root begins with these entries."""
        return root.entries.part(0, min(len(self.entries), len(root.entries))) == self.entries
