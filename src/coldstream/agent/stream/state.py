"""Where the agent is with one stream: one value, and what follows from it alone.

    Waiting ── it is ours ──> Opening ── claimed ──> Cutting <── more, or level ── Behind
       ▲                       │   ▲                  │ │  └── all is cut ─────────> │
       └── nothing committed ──┘   │                  │ └── damaged ──> Blocked      │
                                   │                  ▼                    │         │
                                   └────────────── Draining <── failed ────┴─────────┘

    Waiting: nothing is committed, it is another node's work, or no claim has come about yet.
    Draining: the claim is over or something failed; what is under way comes back first.
    Blocked: cut up to a damaged chunk, which is tried again later.
    Gone: the directory is gone, and nothing that is held of it can be uploaded.

All state that matters is in S3 and the catalog. What is here may be lost at any instant: another
agent, here or on another node, begins at the manifest's next offset. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.agent.stream.cutting import OwnClaim
from coldstream.agent.stream.division import Turn
from coldstream.errors import ColdstreamError

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Waiting:
    """There is nothing that could be claimed, or it is another node's work.

    Attributes:
        until: when it is tried again after a fault.
        unproved: there are chunks that are not known to be committed.
    """

    until: float = NEVER
    unproved: bool = False


@dataclass(frozen=True, slots=True)
class Suspect:
    """A fault or a hole was here: nothing behind it is cut before it is uploaded.

    Attributes:
        at: offset.
        joins: once it is there, a new claim can take fragments that wait above.
    """

    at: int
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Missed:
    """Other agents are waited for below a gap; what lies behind it is uploaded meanwhile.

    Attributes:
        until: when the gap is looked at again.
        error: what to tell until then.
    """

    until: float
    error: ColdstreamError


@dataclass(frozen=True, slots=True)
class Opening:
    """Being claimed.

    Attributes:
        claim: that is over; of epoch 0 if there was none.
        suspect: what is looked at first once it is claimed.
    """

    claim: OwnClaim = field(default_factory=OwnClaim)
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class Cutting:
    """Claimed; what is committed is cut, and the manifest follows."""

    claim: OwnClaim
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """All that can be is cut, and the manifest has not followed yet."""

    claim: OwnClaim
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing from a damaged chunk on is cut; what lies before it goes on.

    Attributes:
        at: offset of the chunk.
        until: when it is tried again; perhaps the file was mended.
    """

    claim: OwnClaim
    at: int
    until: float


@dataclass(frozen=True, slots=True)
class Draining:
    """The claim is over or something failed: nothing is cut until what is under way has come back.

    Attributes:
        claim: under which it was uploaded.
        until: when it is claimed anew at the earliest.
        suspect: what is looked at first once it is claimed.
    """

    claim: OwnClaim
    until: float = NEVER
    suspect: Suspect | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing more is to be done."""


State = Waiting | Opening | Cutting | Behind | Blocked | Draining | Gone
#: States in which the stream is cut.
Open = Cutting | Behind | Blocked


@dataclass(frozen=True, slots=True)
class Course:
    """One stream.

    Attributes:
        state: where the agent is with it.
        next_offset: of the manifest, as last seen.
        epoch: likewise.
        position: where it is cut next.
        cut_offset: everything below has been cut; above the position where it is cut a second time.
        hole_end: where a hole ends that waits for what follows it; None if none does.
        missed: of the gap that ends there, while no hole stands for it yet.
        flying: first offsets of slices that are being uploaded.
        error: why it stands still; None while it does not.
        end: with `once`: what is committed above came after the start; None for no end.
        vanished_at: when its directory was seen to be gone; None while it is there.
        gave_up: with `once`: the manifest could not be watched after a fault.
        pending_from: where the manifest ended when fragments were seen that wait above.
        watched_at: last look at the manifest.
        moved_at: last time that an upload ended or the manifest moved.
        reclaimed_at: when its claim was last found missing.
        turn: whose work it is.
        read: whether the manifest was read; before, nobody knows where it ends.
        there: whether the stream was in the catalog then.
    """

    state: State = field(default_factory=Waiting)
    next_offset: int = 0
    epoch: int = 0
    position: int = 0
    cut_offset: int = 0
    hole_end: int | None = None
    missed: Missed | None = None
    flying: tuple[int, ...] = ()
    error: ColdstreamError | None = None
    end: int | None = None
    vanished_at: float | None = None
    gave_up: bool = False
    pending_from: int | None = None
    watched_at: float = NEVER
    moved_at: float = 0.0
    reclaimed_at: float = NEVER
    turn: Turn = field(default_factory=Turn)
    read: bool = False
    there: bool = False

    @property
    def vanished(self) -> bool:
        """Whether its directory is gone."""
        return self.vanished_at is not None

    @property
    def claim(self) -> OwnClaim:
        """The last claim; of epoch 0 if there is none."""
        state = self.state
        return OwnClaim() if isinstance(state, Waiting | Gone) else state.claim

    @property
    def until(self) -> float:
        """When it is tried again after a fault."""
        state = self.state
        return state.until if isinstance(state, Waiting | Draining | Blocked) else NEVER

    @property
    def suspect(self) -> Suspect | None:
        """What nothing is cut behind before it is uploaded; also a damaged chunk."""
        state = self.state
        if isinstance(state, Blocked):
            return Suspect(state.at)
        return None if isinstance(state, Waiting | Gone) else state.suspect

    @property
    def over(self) -> bool:
        """Whether the claim has to be made again."""
        return isinstance(self.state, Draining | Opening)

    @property
    def level(self) -> bool:
        """Whether the manifest has all that was cut."""
        return self.next_offset >= self.position

    def limit(self, committed: int) -> int:
        """All offsets below this may be cut.

        Args:
            committed: all local offsets below this are committed.
        """
        blocked_at = self.state.at if isinstance(self.state, Blocked) else None
        return min(each for each in (committed, blocked_at, self.end) if each is not None)
