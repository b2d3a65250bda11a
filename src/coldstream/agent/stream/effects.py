"""What the agent sees of one stream and what it does with it, as values; see `step`."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.settings import AgentSettings
from coldstream.agent.stream.cutting import OwnClaim
from coldstream.agent.stream.gaps import Bridged
from coldstream.agent.stream.opening import Opened
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at a stream is done under.

    Attributes:
        now: monotonic seconds.
        now_ms: the wall clock, ms since the Unix epoch, as chunk timestamps have it.
        most: how many uploads may start.
        committed: all local offsets below this are committed.
        writer: whether this node has the stream's writer, or nobody can say.
        oldest_at: since when the oldest that is not published is known to be there; None if
            nothing waits.
        unproved_at: since when the local log has messages that are neither proved to be committed
            nor published, as far as is known; None if it has none.
        store_at: when it is worth asking the store, monotonic seconds; `now` for now.
        stuck: why the manifest does not follow; None if it does.
        settings: of the agent.
        epoch: of the last chunk that is proved to be committed; 0 if unknown.
        super_stream: whose partition it is; "" if none or unknown.
        named: whether the name of its queue is known.
        begin: where the local log begins; 0 also where nobody has looked.
    """

    now: float
    now_ms: int
    most: int
    committed: int
    writer: bool
    oldest_at: float | None
    unproved_at: float | None
    store_at: float
    stuck: ColdstreamError | None
    settings: AgentSettings
    epoch: int = 0
    super_stream: str = ""
    named: bool = False
    begin: int = 0


# --- what came ---


@dataclass(frozen=True, slots=True)
class Begun:
    """A look begins."""


@dataclass(frozen=True, slots=True)
class TurnRead:
    """The manifest, as one that stands by sees it; 0 where there is none.

    Attributes:
        next_offset: of the manifest.
        epoch: likewise.
        there: whether the stream is in the catalog.
    """

    next_offset: int = 0
    epoch: int = 0
    there: bool = False


@dataclass(frozen=True, slots=True)
class Rested:
    """Nothing is to be done; `unproved` says whether chunks wait that may not be committed."""

    unproved: bool


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """There is no committed chunk; `unproved` as in `Rested`."""

    unproved: bool


@dataclass(frozen=True, slots=True)
class Salvaging:
    """What brokers have lost is uploaded before the claim; first offsets of its slices."""

    begun: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The stream is claimed."""

    opened: Opened


@dataclass(frozen=True, slots=True)
class CutTo:
    """Slices were cut.

    Attributes:
        position: where it is cut next.
        begun: first offsets of the slices; from now on they are under way.
        over: whether what comes next needs another claim.
    """

    position: int
    begun: tuple[int, ...]
    over: bool


@dataclass(frozen=True, slots=True)
class BeginsAbove:
    """The local log begins at `begin`, above all that was cut."""

    begin: int


@dataclass(frozen=True, slots=True)
class Watching:
    """It is time to look at the manifest; `trying`: something was tried since it last moved."""

    trying: bool


@dataclass(frozen=True, slots=True)
class Helped:
    """A manifest that does not follow was helped; `again` is where to cut a second time from."""

    again: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """An effect has failed; `again_at` is when it is tried again, monotonic seconds."""

    error: ColdstreamError
    again_at: float


Event = (
    Begun
    | TurnRead
    | Rested
    | Unclaimed
    | Salvaging
    | Claimed
    | CutTo
    | BeginsAbove
    | Bridged
    | Watching
    | CatalogItem
    | Helped
    | Failed
)


# --- what to do ---


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """Read where the manifest ends: `TurnRead`."""


@dataclass(frozen=True, slots=True)
class TellTakeOver:
    """Say that this node does another's work for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Rest:
    """Forget what was to be cut: `Rested`."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Claim it, as far as it is committed below `limit`: `Claimed` or `Unclaimed`."""

    limit: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Cut from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut: `CutTo`, `BeginsAbove`, or nothing where there is no log.

    Attributes:
        claim: under which it is uploaded.
        limit: offsets below this may be cut.
        most: slices.
        hurry: nothing waits for its fragment to fill.
        hole_end: what begins here does not wait either; None for nothing.
    """

    claim: OwnClaim
    limit: int
    most: int
    hurry: bool
    hole_end: int | None = None


@dataclass(frozen=True, slots=True)
class Bridge:
    """Declare lost, under `epoch`, what nobody has below `begin`: `Bridged`."""

    epoch: int
    begin: int
    limit: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Say whether something was tried: `Watching`."""


@dataclass(frozen=True, slots=True)
class ReadItem:
    """Read the stream's item: a `CatalogItem`."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Note that the manifest follows; `moved`: it was seen to."""

    moved: bool


@dataclass(frozen=True, slots=True)
class Help:
    """Do what may make the manifest follow, if it has stood still for long enough: `Helped`."""

    item: CatalogItem


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep what is not durable yet readable."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare what others have uploaded under `epoch`, below `limit`."""

    epoch: int
    limit: int


Effect = (
    ReadTurn
    | TellTakeOver
    | Rest
    | OpenStream
    | Restart
    | Cut
    | Bridge
    | Watch
    | ReadItem
    | Follow
    | Help
    | Hold
    | Compare
)
