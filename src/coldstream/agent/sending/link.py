"""How much to send at once: what uploads have taken so far says what the link can do.

Pure: clocks are arguments. A PUT shall take about the flush time at the most, so that what is lost
with a connection is little, and what is new waits little. On a link for which full fragments take
longer, fewer are sent at once, and then smaller ones are cut; both grow again with the link.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Smaller fragments cost more than they help: each is a PUT, and a row in the manifest.
LEAST_PIECE = 2**20
_LEAST_SECONDS = 10.0
#: Smaller uploads measure the way to the server and back, not the link.
_TELLING_BYTES = 2**18
#: How much a new measurement counts.
_WEIGHT = 0.3
#: What was measured holds for so long, seconds; longer where an upload takes minutes.
_REMEMBERED = 600.0
_REMEMBERED_UPLOADS = 4.0
#: More uploads at once must bring so much more to be worth it.
_WORTH = 1.15


@dataclass(slots=True)
class TokenBucket:
    """Bytes a second, all uploads together.

    Args:
        rate: bytes a second; 0 for no limit.
        burst: seconds for which what was not used may be used later.
    """

    rate: int
    burst: float = 0.2
    _free_at: float = float("-inf")  # when all that was granted has gone at this rate

    def reserve(self, size: int, now: float) -> float:
        """Take `size` bytes; how long to wait before they may go, seconds."""
        if not self.rate:
            return 0.0
        begin = max(self._free_at, now - self.burst)
        self._free_at = begin + size / self.rate
        return max(0.0, begin - now)


@dataclass(slots=True)
class Link:
    """Decides from what uploads take how many there may be at once, and of what size.

    Args:
        most: uploads at once on a good link.
        full: bytes of a fragment on a good link.
        seconds: that a PUT may take.

    Attributes:
        at_once: uploads that may be under way.
        piece: bytes of the next fragments, at the most.
    """

    most: int
    full: int
    seconds: float
    at_once: int = field(init=False)
    piece: int = field(init=False)
    _rates: dict[int, tuple[float, float]] = field(default_factory=dict)  # by number: B/s, when
    _samples: int = 0  # since the number changed
    _changed_at: float = float("-inf")
    _told_at: float = float("inf")  # the last upload that measured the link
    _remembered: float = _REMEMBERED
    _cap: int = field(init=False)  # what the last broken connections leave

    def __post_init__(self) -> None:
        self.at_once, self.piece = self.most, self.full
        self._cap = self.full

    @property
    def least(self) -> int:
        """Bytes of the smallest pieces that are asked for."""
        return min(LEAST_PIECE, self.full)

    @property
    def rate(self) -> float | None:
        """Bytes a second that all uploads together come to; None if nobody knows yet."""
        known = self._rates.get(self.at_once)
        return None if known is None else known[0]

    def landed(self, size: int, began: float, now: float, *, among: float) -> None:
        """An upload has landed.

        Args:
            size: bytes.
            began: monotonic seconds.
            now: likewise.
            among: how many were under way meanwhile, itself included, on the average.
        """
        seconds = max(now - began, 1e-3)
        if size >= self._cap // 2:
            self._cap = min(self.full, self._cap * 2)
        if began - self._told_at > self._remembered:
            self._forget(began)
        if size >= min(_TELLING_BYTES, self.full // 4) and began >= self._changed_at:
            self._told_at = now
            self._remembered = _REMEMBERED + _REMEMBERED_UPLOADS * seconds
            rate = size / seconds * max(1.0, among)
            before = self._known(self.at_once, now)
            before = rate if before is None else before
            self._rates[self.at_once] = before + _WEIGHT * (rate - before), now
            self._samples += 1
            if self._samples >= self.at_once + 1:
                self._decide(now)
        self._cut_to_size()

    def cut_short(self, sent: int) -> None:
        """A connection broke, or stood still, with `sent` bytes of an upload on their way."""
        self._cap = max(self.least, min(self._cap // 2, max(sent, 1)))
        self._cut_to_size()

    def change(self, most: int, full: int, seconds: float) -> None:
        """Go on with other limits."""
        if (most, full, seconds) != (self.most, self.full, self.seconds):
            all_at_once = self.at_once == self.most
            self.most, self.full, self.seconds = most, full, seconds
            self.at_once, self._cap = most if all_at_once else min(self.at_once, most), full
            self._cut_to_size()

    def _decide(self, now: float) -> None:
        """One upload more at once, or one less, or neither."""
        here = self._rates[self.at_once][0]
        below, above = self._known(self.at_once - 1, now), self._known(self.at_once + 1, now)
        room = here * self._seconds  # bytes that may be under way
        step = 0
        if above is not None and above > here * _WORTH:
            step = 1  # each connection alone is slow, not the link
        elif room < self.at_once * self.full:
            step = -1 if below is None or below * _WORTH >= here else 0
        elif room >= (self.at_once + 1) * self.full:
            step = 1
        number = min(max(self.at_once + step, 1), self.most)
        if number != self.at_once:
            self.at_once, self._changed_at = number, now
        self._samples = 0

    def _forget(self, now: float) -> None:
        """Nothing has measured the link for long: it may be another one."""
        self._rates.clear()
        self.at_once, self._changed_at, self._samples, self._told_at = self.most, now, 0, now

    def _known(self, number: int, now: float) -> float | None:
        rate, at = self._rates.get(number, (0.0, float("-inf")))
        return rate if now - at <= self._remembered else None

    @property
    def _seconds(self) -> float:
        return max(self.seconds, _LEAST_SECONDS)

    def _cut_to_size(self) -> None:
        rate = self.rate
        fits = self.full if rate is None else int(rate * self._seconds / self.at_once)
        self.piece = min(max(fits, self.least), self._cap, self.full)


def told(link: Link) -> str:
    """What a person should know of a link that is not as it should be."""
    rate = "" if link.rate is None else f"about {_size(link.rate)} a second go through, "
    many = "one upload" if link.at_once == 1 else f"{link.at_once} uploads"
    return (
        f"uploads go slowly: {rate}so {many} at once, of up to {_size(link.piece)} each"
        f" (on a good link {link.most} of {_size(link.full)})"
    )


def _size(count: float) -> str:
    if count < 1024:
        return f"{count:.0f} bytes"
    power = min(int(count).bit_length() // 10, 3)
    shown = count / 1024**power
    return f"{shown:.{0 if shown >= 10 else 1}f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"
