"""What the agent can say of a stream at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.agent.disk.log import StreamLog
from coldstream.agent.faults import ClosedDirectoryError
from coldstream.agent.settings import AgentSettings
from coldstream.agent.telling.watermarks import Watermarks
from coldstream.errors import ColdstreamError, InternalError, UnavailableError
from coldstream.manifest.queue_name import QueueName
from coldstream.plans.truncate import Truncation

_MAX_NOTICES = 200
_NOBODYS = "no member's log has them any more"
_UNSEEN = "what came after its last look at the files is not known"


class Notice(str):
    """What a person should know.

    Attributes:
        offset: from which on, if it is about offsets.
    """

    offset: int | None = None

    @classmethod
    def at(cls, words: str, stream: str, offset: int) -> Notice:
        """One that says where it is."""
        notice = cls(f"{words} (stream {stream}, offset {offset})")
        notice.offset = offset
        return notice


class Notices(list[Notice]):
    """The last things that a person should know, oldest first; an agent runs for months.

    Attributes:
        total: how many there have ever been.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def append(self, notice: str) -> None:
        """Take one, unless the very same is among the last ones; the oldest goes."""
        if notice in self:
            return
        super().append(notice if isinstance(notice, Notice) else Notice(notice))
        self.total += 1
        del self[:-_MAX_NOTICES]

    def since(self, total: int) -> list[Notice]:
        """Those that have come since there were `total`, as far as they are here."""
        return self[max(0, len(self) - (self.total - total)) :]


@dataclass(frozen=True, slots=True)
class Standstill:
    """What there is to say of a stream that stands still.

    Attributes:
        seconds: for how long its manifest has not moved although something waits.
        offsets: how many offsets of the local log its manifest lacks: committed ones, or those that
            nobody proves to be; None if the log cannot be read.
        reason: in words.
    """

    seconds: float
    offsets: int | None
    reason: str

    def __str__(self) -> str:
        lacks = "" if self.offsets is None else f" {self.offsets} offsets are not in the manifest:"
        return f"no progress for {self.seconds / 60:.0f} minutes:{lacks} {self.reason}"


@dataclass(slots=True)
class Gone:
    """What there is to say of a stream whose directory is gone.

    Attributes:
        at_ms: when that was seen, ms since the Unix epoch.
        end: one past the last offset that was seen in its files, which may have had more at the
            end; None if nothing was held of them.
        proved: one past the last offset of them that was known to be committed; None likewise.
    """

    at_ms: int
    end: int | None = None
    proved: int | None = None


@dataclass(slots=True)
class Progress:
    """What one stream has come to, for reports. Sizes in bytes, times in seconds.

    Attributes:
        stream: directory name.
        next_offset: of the manifest, as last seen.
        cut_offset: everything below it has been cut.
        fragments: uploaded by this agent.
        bytes: uploaded by this agent.
        durable_seconds: from the first look at the stream until its manifest had followed.
        error: why it stands still, None while it does not.
        holes: ranges [first, next) that this agent has declared lost.
        notices: what a person should know although the stream goes on.
        standstill: what was last told of a stream that makes no progress; None while it does.
        gone: set once the directory is gone.
        marks: how far it has come, and what is behind.
    """

    stream: str
    next_offset: int = 0
    cut_offset: int = 0
    fragments: int = 0
    bytes: int = 0
    durable_seconds: float | None = None
    error: ColdstreamError | None = None
    holes: list[tuple[int, int]] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)
    standstill: Standstill | None = None
    gone: Gone | None = None
    marks: Watermarks = field(default_factory=Watermarks)


def of_gone(progress: Progress, *, read: bool, fenced: bool, elsewhere: bool = False) -> str:
    """What a person should know of a stream whose directory is gone, when nothing more is done.

    Args:
        progress: of the stream.
        read: whether its manifest was read.
        fenced: whether a newer epoch has claimed it.
        elsewhere: whether the broker has it on other nodes.
    """
    gone, durable = progress.gone, progress.next_offset
    if fenced:
        words = "its directory is gone, and a newer epoch has claimed the stream: the agents of its"
        return f"{words} members upload what it has (stream {progress.stream})"
    words = "its directory is gone; "
    if not read:
        words += "how far the remote tier has it was not read"
        if gone is not None and gone.end is not None:
            words += f"; its files ended at offset {gone.end}, and {_UNSEEN}"
        return f"{words} (stream {progress.stream})"
    words += f"the remote tier has it up to offset {durable}"
    if gone is None or gone.end is None:
        words += ", and what its files had above is not known"
    elif gone.end > durable:
        lost = max(0, (gone.proved or 0) - durable)
        words += (
            f"; {gone.end - durable} offsets more were seen in its files and not uploaded,"
            f" {lost} of them known to be committed; {_UNSEEN}"
        )
        if elsewhere:
            words += (
                "; the broker still has the stream, and its other members upload what they have"
            )
    else:
        words += f", as much as this agent had seen of it; {_UNSEEN}"
    return Notice.at(words, progress.stream, durable)


def of_other_name(stream: str, said: QueueName, name: QueueName) -> str:
    """What a person should know of a stream that the catalog has under another queue's name."""
    return (
        f"the catalog has it as queue {said.queue!r} of vhost {said.vhost!r}, and rules and"
        f" listings go by that; the broker says {name.queue!r} of {name.vhost!r}: correct it with"
        f" `coldstream rename` (stream {stream})"
    )


def of_truncation(stream: str, done: Truncation) -> str:
    """What a person should know of a claim that has cut something off."""
    look = f"see `coldstream quarantine list {stream}`"
    kept = look if done.record_key else "no data was cut off"
    return Notice.at(
        f"epoch {done.epoch} has truncated the stream to {done.offset}: {done.reason}."
        f" {done.fragments} fragments or holes, {done.bytes} bytes, are cut off; {kept}",
        stream,
        done.offset,
    )


def of_salvaged(stream: str, first: int, end: int, before: int, epoch: int) -> str:
    """What a person should know of what a broker has lost, and this agent has uploaded."""
    return Notice.at(
        f"{_lost_by_brokers(first, end, before, epoch)}. This agent still held them, and has"
        " uploaded them before the new epoch's claim cuts them off: see `coldstream quarantine list"
        f" {stream}`",
        stream,
        first,
    )


def of_lost(stream: str, first: int, end: int, before: int, epoch: int, why: str) -> str:
    """What a person should know of what a broker has lost, and nobody has uploaded."""
    return Notice.at(
        f"{_lost_by_brokers(first, end, before, epoch)} before they were uploaded, and {why}: they"
        " are in no tier",
        stream,
        first,
    )


def _lost_by_brokers(first: int, end: int, before: int, epoch: int) -> str:
    return (
        f"offsets {first} to {end - 1} were committed in epoch {before}, and the log of epoch"
        f" {epoch} has them no more: its members have lost them"
    )


def of_take_over(stream: str, offset: int, seconds: float) -> str:
    """What a person should know of a stream whose writer's agent does nothing."""
    return Notice.at(
        "the agent beside the stream's writer has published nothing in its time although something"
        f" waits; this node does its work for {seconds:.0f} s",
        stream,
        offset,
    )


def of_held_hole(log: StreamLog, first: int, next_offset: int) -> str:
    """What a person should know of a hole whose data the local log still has."""
    return Notice.at(
        f"the remote tier has given up offsets {first} to {next_offset - 1}, which this node still"
        f" has: `coldstream repair {log.stream} --range {first}..{next_offset} --from-dir"
        f" {log.directory.parent}` puts them in, before local retention takes them here",
        log.stream,
        first,
    )


def of_left_out(stream: str, begin: int, end: int, *, nobodys: bool) -> str:
    """What a person should know of a stream whose first claim began above what was here.

    Args:
        stream: directory name.
        begin: the first offset that was here and is left out.
        end: one past the last one.
        nobodys: whether all members have said that their logs have none of them any more.
    """
    who = "who needs them reads them from a broker that still has them"
    return Notice.at(
        f"offsets {begin} to {end - 1}, which this node has had, are left out of the"
        " remote tier: another node's agent was the first to claim the stream, or local retention"
        f" was faster than this one; {_NOBODYS if nobodys else who}",
        stream,
        begin,
    )


def of_beginning(stream: str, first_offset: int, *, nobodys: bool) -> str:
    """What a person should know of a manifest that does not begin with the stream.

    Args:
        stream: directory name.
        first_offset: of the manifest.
        nobodys: as above.
    """
    who = "who needs what there is of them reads it from a broker that still has it"
    return Notice.at(
        f"the remote tier has this stream from offset {first_offset} on: offsets 0 to"
        f" {first_offset - 1} were not in this node's log any more when it was claimed first;"
        f" {_NOBODYS if nobodys else who}",
        stream,
        0,
    )


def of_new_root(stream: str, prefix: str, settings: AgentSettings) -> str:
    """What a person should know of a claim that found no root, nor any object, of the stream."""
    return (
        f"the catalog named a root of an empty manifest, but {place(settings, prefix)} had no"
        " object of this stream, so it was written anew; an earlier run had another bucket, or this"
        " one was emptied: see that all agents and the commit function have the same"
        f" (stream {stream})"
    )


def place(settings: AgentSettings, prefix: str) -> str:
    """How messages name where the data goes."""
    return (f"bucket {settings.bucket}, " if settings.bucket else "") + f"prefix {prefix}"


def translated(exc: Exception, log: StreamLog) -> ColdstreamError:
    """An error of ours: itself, a file that cannot be read right now, or something unexpected."""
    if isinstance(exc, ColdstreamError):
        return exc
    if not isinstance(exc, OSError):
        return InternalError(f"an unexpected error: {exc!r}", stream=log.stream)
    return UnavailableError(
        f"a file cannot be read: {exc.strerror or exc}",
        stream=log.stream,
        key=str(exc.filename) if exc.filename else str(log.directory),
        remedy=ClosedDirectoryError.remedy if isinstance(exc, PermissionError) else None,
    )
