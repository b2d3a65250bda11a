"""A ledger that is lost, from what the bucket still shows of it.

The floor of an epoch stands in the trailer of each of its fragments. So a handful of trailers an
epoch says it: those of the first and of the last fragments, because either end may have been
collected or be damaged. Trailers of one epoch may disagree, if one of them lies; then what most of
them say counts, and of equals the lowest. That may be wrong, but not in silence: a fragment that
says another floor is refused, and what it alone has becomes a shortfall.

An epoch whose claim uploaded nothing shows nowhere. Its agent finds its claim gone, and claims
again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coldstream.errors import CorruptDataError
from coldstream.manifest.ledger import Ledger
from coldstream.names import DataKey
from coldstream.plans.key_columns import KeyReader
from coldstream.plans.rebuild_rows import Row, entry_of
from coldstream.plans.resolve import Listed

#: Fragments at either end of an epoch that are asked for its floor.
_ASKED = 8
#: Epochs that are looked at: as many as an item could hold claims.
MAX_EPOCHS = 20_000


@dataclass(slots=True)
class _UploadsOfEpoch:
    first_offset: int
    first: list[Listed] = field(default_factory=list)
    last: deque[Listed] = field(default_factory=lambda: deque(maxlen=_ASKED))


class Witnesses:
    """Fragments that can say the floors of their epochs.

    Args:
        reader: of the stream's keys.
        above: only of epochs above this.
    """

    def __init__(self, reader: KeyReader, *, above: int = 0) -> None:
        self._reader = reader
        self._above = above
        self._epochs: dict[int, _UploadsOfEpoch] = {}

    def add(self, page: Sequence[Row]) -> None:
        """Look at a page of LIST; pages come in their order.

        Raises:
            CorruptDataError: there are more epochs than any stream has.
        """
        found = self._reader.entries([row.key for row in page], [row.size for row in page])
        found = found[found["epoch"] > self._above]
        for epoch in np.unique(found["epoch"]).tolist():
            rows = found[found["epoch"] == epoch]
            known = self._epochs.setdefault(epoch, _UploadsOfEpoch(int(rows["first_offset"][0])))
            known.first += [self._listed(row) for row in rows[: _ASKED - len(known.first)]]
            known.last.extend(self._listed(row) for row in rows[-_ASKED:])
        if len(self._epochs) > MAX_EPOCHS:
            raise CorruptDataError(
                f"fragments of more than {MAX_EPOCHS} epochs: no stream has so many",
                stream=self._reader.stream,
            )

    @property
    def asked(self) -> list[Listed]:
        """The fragments whose trailers should be read."""
        found = {
            each.path: each
            for known in self._epochs.values()
            for each in (*known.first, *known.last)
        }
        return list(found.values())

    def ledger(self, floors: Mapping[str, int], base: Ledger) -> tuple[Ledger, tuple[int, ...]]:
        """The ledger, and the epochs about whose floor trailers disagree.

        Args:
            floors: by key, what trailers say that hold.
            base: what is known of lower epochs.
        """
        claims = [(claim.epoch, claim.floor) for claim in base.claims]
        disputed: list[int] = []
        for epoch, known in sorted(self._epochs.items()):
            if not epoch:
                continue
            paths = {each.path for each in (*known.first, *known.last)}
            votes = Counter(floors[path] for path in paths if path in floors)
            if len(votes) > 1:
                disputed.append(epoch)
            # Of an epoch none of whose trailers holds, its first key is all that there is.
            ranked = sorted(votes, key=lambda floor: (-votes[floor], floor))
            claims.append((epoch, ranked[0] if ranked else known.first_offset))
        return Ledger.of(claims), tuple(disputed)

    def _listed(self, row: np.void) -> Listed:
        entry = entry_of(row)
        key: DataKey = entry.data_key(self._reader.stream)
        return Listed(key, key.path(self._reader.prefix), entry.size)


def ledger_of_keys(pages: Iterable[Sequence[Row]], prefix: str, stream: str) -> Ledger:
    """The best guess where only keys are read: an epoch claimed where its first fragment begins.

    It is wrong where the first fragment of an epoch was collected, and where an epoch began with a
    hole.
    """
    witnesses = Witnesses(KeyReader(prefix, stream))
    for page in pages:
        witnesses.add(page)
    return witnesses.ledger({}, Ledger())[0]
