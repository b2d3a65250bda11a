"""What the other members of a stream still have: asked before anything is declared lost.

A stream has a replica on several nodes, and each applies retention for itself. So a range that the
local log has lost may still be on another node, whose agent can upload it. In the agent's declared
mode nobody can be asked; there the operator says it, or no range is ever given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol, TypeVar

from coldstream.agent.faults import LostLocallyError
from coldstream.errors import NotFoundError, UnavailableError
from coldstream.manifest.catalog import QueueName
from coldstream.names import made_ns
from coldstream.usecases.holes import ChainGap
from coldstream.wording import listed

T = TypeVar("T")

_NAMED = 3
#: The broker must know one of so many other streams; these may be deleted, too.
_WITNESSES = 100
_LET = "run the agent of the member that has the older log; this one goes on by itself then"
_SEARCH = (
    "look on the other nodes for the older log and run the agent of one that has it; if none has,"
    " run this one with --last-copy; then raise the stream's local retention"
)


class NoStreamError(UnavailableError):
    """The broker knows other streams but not this one: it was deleted, or the broker boots yet."""


class Members(Protocol):
    """The other members of each stream."""

    def earliest(self, stream: str) -> int | None:
        """The lowest first offset that any other member still has; None if none has anything.

        Every member of the stream must answer. Each applies retention for itself, so what was
        confirmed by a majority may be left on one node alone, and that may be the one that does not
        answer: a hole would hide what it has, and a claim by a shorter log could not be compared
        with it. A node that is gone for good is taken out of the stream's members, or the operator
        says that this is the last copy.

        Raises:
            UnavailableError: a member does not answer. Then nothing is declared lost and nothing is
                cut off, and the agent asks again later.
            NoStreamError: the broker knows no such stream.
        """
        ...

    def lone(self, stream: str) -> bool:
        """Whether the only member of the stream is here, so that no other agent holds any of it.

        Raises:
            As `earliest`.
        """
        ...


class Asked(Protocol):
    """Asked of the members of a queue, by virtual host and name: `broker.node.StreamMembers`."""

    def earliest(self, vhost: str, queue: str) -> int | None:
        """The lowest offset that any member still has; None if none has anything."""
        ...

    def lone(self, vhost: str, queue: str) -> bool:
        """As `Members.lone`."""
        ...

    def knows(self, vhost: str, queue: str) -> bool:
        """Whether the broker has the queue at all."""
        ...


class MembersOf:
    """The members of a stream over their stream ports.

    Args:
        asked: of a queue by vhost and name.
        names: queue of each directory, as far as it is settled.
    """

    def __init__(self, asked: Asked, names: Mapping[str, QueueName]) -> None:
        self._asked, self._names = asked, names

    def earliest(self, stream: str) -> int | None:
        """As `Members` says."""
        return self._of(stream, self._asked.earliest)

    def lone(self, stream: str) -> bool:
        """As `Members` says."""
        return self._of(stream, self._asked.lone)

    def _of(self, stream: str, ask: Callable[[str, str], T]) -> T:
        name = self._names.get(stream)
        if name is None:
            raise UnavailableError("nobody knows which queue this directory is", stream=stream)
        made = made_ns(stream)
        if any(made_ns(each) > made and self._names.get(each) == name for each in self._names):
            raise NoStreamError("its queue was deleted and declared again", stream=stream)
        try:
            return ask(name.vhost, name.queue)
        except NotFoundError as exc:
            if self._knows_another(name):
                raise NoStreamError(exc.reason, stream=stream) from exc
            raise UnavailableError(
                f"{exc.reason}, nor any other stream that it had: it may have been set up anew, or"
                " taken out of its cluster, where members may have more",
                stream=stream,
            ) from exc

    def _knows_another(self, name: QueueName) -> bool:
        """Whether the broker is the one that had these streams, and no new one in its place."""
        others = {each for each in map(self._names.get, list(self._names)) if each} - {name}
        return any(self._asked.knows(each.vhost, each.queue) for each in islice(others, _WITNESSES))


class OfDeleted:
    """The members of a stream whose directory has been gone for long.

    Args:
        members: asked first; a stream that is deleted has none.
    """

    def __init__(self, members: Members) -> None:
        self._members = members

    def earliest(self, stream: str) -> int | None:
        """As `Members` says."""
        try:
            return self._members.earliest(stream)
        except NoStreamError:
            return None

    def lone(self, stream: str) -> bool:
        """As `Members` says; agents of members that were, may hold some."""
        del stream
        return False


class LastCopy:
    """No other member has older data, because the operator said so (`--last-copy`)."""

    def earliest(self, stream: str) -> int | None:
        """None for every stream."""
        del stream
        return None

    def lone(self, stream: str) -> bool:
        """True for every stream."""
        del stream
        return True


def check_lost(members: Members | None, stream: str, gap: ChainGap, *, local_first: int) -> None:
    """Return if no member has anything of a gap; only then may it be declared lost.

    Args:
        members: who can be asked; None if nobody has said anything about other members.
        stream: directory name.
        gap: behind the resolved chain.
        local_first: where the local log begins.

    Raises:
        LostRangeError: a member has, or may have, some of it. The message says what to do.
        UnavailableError: a member does not answer.
    """
    where = f"the local log begins at {local_first}, and {gap} {_fate(gap)}"
    if members is None:
        raise LostLocallyError(
            f"{where}; if another node still has them, run its agent; if none has, start this one"
            " with --last-copy, which declares them lost and goes on",
            remedy=_SEARCH,
            stream=stream,
            offset=gap.first_offset,
        )
    earliest = members.earliest(stream)
    if earliest is not None and earliest < gap.next_offset:
        raise LostLocallyError(
            f"{where}; another member still has them from {max(earliest, gap.first_offset)} on;"
            " let its agent upload them",
            remedy=_LET,
            stream=stream,
            offset=gap.first_offset,
        )


def _fate(gap: ChainGap) -> str:
    """Why the manifest lacks a gap: never that nothing was uploaded where an object holds some."""
    if not gap.holding:
        return "were never uploaded"
    held = [f"{key}: {why}" for key, why in zip(gap.holding, gap.why, strict=True)]
    return (
        "are not in the manifest, although objects in the bucket hold some of them that cannot"
        f" follow it ({listed(held, _NAMED, separator='; ')})"
    )


def check_alone(members: Members | None, stream: str, *, begin: int, end: int) -> int | None:
    """Where the others' logs begin, if none begins below the local one, so that none can compare
    more; None if no other has anything, or nobody can say.

    A claim compares the local log with the end of the manifest. If the log begins above that, or
    shares nothing with the manifest, a longer log must decide: by this one a lost timeline would
    stay, or everything would be cut off.

    Args:
        members: who can be asked; None if nobody has said anything about other members.
        stream: directory name.
        begin: where the local log begins.
        end: next offset of the manifest.

    Raises:
        LostRangeError: a member has, or may have, an older log. The message says what to do.
        UnavailableError: a member does not answer.
    """
    if begin > end:
        where = (
            f"the local log, in which a new epoch has begun, begins at {begin}, and offsets {end}"
            f" to {begin - 1} are not in the manifest"
        )
    elif begin == end:
        where = f"the local log begins at {begin}, and the manifest has nothing from there on"
    else:
        where = (
            f"the local log begins at {begin}, and shows nothing that could be compared with what"
            f" the manifest has up to {end}"
        )
    if members is None:
        if begin == end:
            return None  # nothing is missing, and whoever runs this says what is committed
        raise LostLocallyError(
            f"{where}; if another node has an older log, run its agent; if none has, start this one"
            " with --last-copy",
            remedy=_SEARCH,
            stream=stream,
            offset=begin,
        )
    earliest = members.earliest(stream)
    if earliest is not None and earliest < begin:
        raise LostLocallyError(
            f"{where}; another member's log begins at {earliest}: let its agent claim",
            remedy=_LET,
            stream=stream,
            offset=begin,
        )
    return earliest
