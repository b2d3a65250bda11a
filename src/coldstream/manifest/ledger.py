"""The ledger: which epoch claimed the stream at which offset, and what that lets in.

A Lambda that commits is not the writer. An event of epoch 5 may come after epoch 6 was elected and
still describe good committed data; a deposed writer may upload late. So a comparison of epochs
alone is wrong in both directions, and the ledger decides instead
(docs/architecture.md, under "who may write").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from coldstream.errors import CorruptDataError, FencedError, InvalidInputError
from coldstream.names import MAX_EPOCH, MAX_OFFSET

#: Claims in a ledger at which a new one takes those out that say nothing any more, ...
COMPACT_FROM = 1000
#: ... and at which none is taken any more. An item of 400 KB has room for about 24,000: one that is
#: full would take no commit of any kind.
MAX_CLAIMS = 16_000


@dataclass(frozen=True, slots=True)
class Claim:
    """Epoch `epoch` owns the offsets from `floor` on, until a higher epoch's floor."""

    epoch: int
    floor: int


@dataclass(frozen=True, slots=True)
class Right:
    """Who may write what begins at an offset.

    Attributes:
        epoch: the highest one whose data the ledger takes there.
        floor: of that epoch.
        until: no data of it may end above this offset.
    """

    epoch: int
    floor: int
    until: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The claims of a stream, in rising order of epochs.

    Raises:
        CorruptDataError: the epochs do not rise or a number is out of range.
    """

    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        last = 0
        for claim in self.claims:
            if not last < claim.epoch <= MAX_EPOCH or not 0 <= claim.floor <= MAX_OFFSET:
                raise CorruptDataError(f"a ledger with the claim {claim} after epoch {last}")
            last = claim.epoch

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ledger:
        """A ledger from (epoch, floor) pairs."""
        return cls(tuple(Claim(epoch, floor) for epoch, floor in pairs))

    @property
    def epoch(self) -> int:
        """The highest epoch that has claimed, 0 if none has."""
        return self.claims[-1].epoch if self.claims else 0

    def floor(self, epoch: int) -> int | None:
        """The floor of `epoch`, or None if it never claimed."""
        return next((c.floor for c in self.claims if c.epoch == epoch), None)

    def ceiling(self, epoch: int) -> int:
        """Where the right of `epoch` ends: the minimum of the floors of ALL higher epochs.

        The next epoch's floor alone is not enough: with (4, 0), (5, 100), (6, 60) the range
        [60, 100) of epoch 4 was cut off by epoch 6 and must not come back.
        """
        return min((c.floor for c in self.claims if c.epoch > epoch), default=MAX_OFFSET)

    def accepts(self, epoch: int, first_offset: int, next_offset: int) -> bool:
        """Whether data of `epoch` over [first_offset, next_offset) may enter the manifest."""
        floor = self.floor(epoch)
        return floor is not None and floor <= first_offset and next_offset <= self.ceiling(epoch)

    def right_at(self, offset: int) -> Right | None:
        """The right of the highest epoch that may write at `offset`; None if no epoch may.

        That is the highest claim, but where a manifest ends below its floor: after a rebuild, or a
        repair, that has lost what lay there when it claimed.
        """
        until = MAX_OFFSET
        for claim in reversed(self.claims):
            if claim.floor <= offset < until:
                return Right(claim.epoch, claim.floor, until)
            until = min(until, claim.floor)
        return None

    def above(self, first_offset: int) -> Ledger:
        """This ledger without the claims whose right ends at or below `first_offset`.

        No data of theirs can ever enter the manifest again. They are the oldest ones: the right of
        an epoch never reaches further than that of a higher one. The highest claim always stays.
        """
        ceiling = MAX_OFFSET
        for number in range(len(self.claims) - 1, -1, -1):
            if ceiling <= first_offset:
                return Ledger(self.claims[number + 1 :])
            ceiling = min(ceiling, self.claims[number].floor)
        return self

    def compacted(self, recorded: Collection[int]) -> Ledger:
        """This ledger without claims that let nothing in and have cut nothing off.

        A broker that restarts without a message in between claims the same floor again and again.
        A claim goes if the next one has no higher floor, so that its own right is empty and every
        other right stays as it is; and if neither is in the quarantine record, so that what was cut
        off stays cut off by a claim that recorded nothing, or by the very claim that did. The
        highest claim stays.

        Args:
            recorded: epochs of the claims that the quarantine record names.
        """
        kept: list[Claim] = []
        for claim in reversed(self.claims):
            following = kept[-1] if kept else None
            if (
                following is None
                or following.floor > claim.floor
                or claim.epoch in recorded
                or following.epoch in recorded
            ):
                kept.append(claim)
        return Ledger(tuple(reversed(kept)))

    def claimed(self, epoch: int, floor: int) -> Ledger:
        """This ledger with one claim more.

        Raises:
            FencedError: the same or a higher epoch has claimed already.
            InvalidInputError: there are `MAX_CLAIMS` claims.
        """
        if epoch <= self.epoch:
            raise FencedError(f"epoch {epoch} cannot claim, epoch {self.epoch} has", offset=floor)
        if len(self.claims) >= MAX_CLAIMS:
            raise InvalidInputError(
                f"the stream's ledger is full: {len(self.claims)} writers have claimed data that is"
                " still kept; a retention rule that takes the oldest of it makes room"
                " (docs/workflows.md, retention)",
                offset=floor,
            )
        return Ledger((*self.claims, Claim(epoch, floor)))
