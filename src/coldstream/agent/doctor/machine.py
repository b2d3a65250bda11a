"""What this machine has: the broker's files, the right to read them, and a clock."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from coldstream.agent.disk.directory import scan
from coldstream.agent.disk.files import DISK
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.doctor.findings import Finding, failed, ok, warning
from coldstream.errors import ColdstreamError
from coldstream.osiris.chunk import parse_chunk_header
from coldstream.wording import listed

#: What a broker calls the directory of its streams.
_STREAMS = "stream"
_EVERYTHING = 2**64 - 1
#: Clocks that differ by so much are told; S3 and DynamoDB take no signature above the second.
SKEW_SECONDS, SIGNATURE_SECONDS = 5.0, 300.0
_WHERE = (
    "set --data-dir to the broker's directory of streams, DATA_DIR/stream, where DATA_DIR is what"
    " `rabbitmqctl eval 'rabbit:data_dir().'` says"
)
_SYNCHRONISE = "let chrony or systemd-timesyncd set the clock of this machine"
Access = Callable[[Path, int], bool]


def may(path: Path, mode: int) -> bool:
    """Whether this process may do something with a path; `mode` as of `os.access`."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def look_at_directory(data_dir: Path, *, most: int, access: Access = may) -> Iterator[Finding]:
    """Whether the data directory is there, can be read, and holds streams.

    Args:
        data_dir: holds one directory a stream.
        most: streams whose files are tried.
        access: as `may`.
    """
    about, path = "data directory", data_dir.absolute()
    trouble = _way(path, access)
    if trouble is not None:
        yield trouble
        return
    if not path.exists():
        yield ok(about, f"{path} is not there yet; a broker makes it with its first stream")
        return
    found = scan(path, ())
    if not found.streams:
        if StreamLog(path, DISK).segments():
            said = f"{path} is the directory of one stream; they all lie in {path.parent}"
            yield failed(about, said, f"set --data-dir to {path.parent}")
            return
        strange = [*found.bare, *found.strange]
        if strange:
            yield warning(about, f"no stream in {path}, but {listed(sorted(strange))}", _WHERE)
        else:
            yield ok(about, f"{path} holds no stream yet")
        return
    for stream in found.streams[:most]:  # that were written to last
        trouble = _files(path / stream, access)
        if trouble is not None:
            yield trouble
            return
    count = len(found.streams)
    yield ok(about, f"{path} holds {count} stream{'' if count == 1 else 's'}, which can be read")


def _way(path: Path, access: Access) -> Finding | None:
    """What is wrong on the way to a directory, or with it; None if nothing is."""
    about = "data directory"
    for each in reversed((path, *path.parents)):
        try:
            info = each.stat()
        except FileNotFoundError:
            if each == path and path.name == _STREAMS:
                return None
            return failed(about, f"there is no {each}", _WHERE)
        except OSError as exc:
            return failed(about, f"{each}: {exc.strerror or exc}", _WHERE)
        if not stat.S_ISDIR(info.st_mode):
            return failed(about, f"{each} is no directory", _WHERE)
        if not access(each, os.X_OK):
            return _denied(each, info, "enter", stat.S_IXGRP)
    if not access(path, os.R_OK):
        return _denied(path, path.stat(), "list", stat.S_IRGRP)
    return None


def _files(directory: Path, access: Access) -> Finding | None:
    """As `_way`, for a stream's directory and its newest files."""
    info = directory.stat()
    for mode, word, bit in ((os.X_OK, "enter", stat.S_IXGRP), (os.R_OK, "list", stat.S_IRGRP)):
        if not access(directory, mode):
            return _denied(directory, info, word, bit)
    log = StreamLog(directory, DISK)
    for first in log.segments()[-1:]:
        for file in (log.index_path(first), log.segment_path(first)):
            if not access(file, os.R_OK):
                return _denied(file, file.stat(), "read", stat.S_IRGRP)
    return None


def _denied(path: Path, info: os.stat_result, word: str, bit: int) -> Finding:
    owner, group, user = _user(info.st_uid), _group(info.st_gid), _user(os.geteuid())
    mode = stat.S_IMODE(info.st_mode)
    said = f"{path} ({owner}:{group} {mode:04o}) does not let the user {user} {word} it"
    if mode & bit:
        remedy = f"`usermod -aG {group} {user}`, and start the agent anew"
    else:
        needed = "rX" if word == "enter" else "r"
        remedy = f"`chmod g+{needed} {path}`, and run the agent as a user in the group {group}"
    return failed("data directory", said, remedy)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def look_at_chunks(data_dir: Path, *, most: int, now_ms: Callable[[], int]) -> Iterator[Finding]:
    """This machine's clock against the one by which the broker has written its newest chunk.

    Only a chunk from the future shows anything: an old one may be of a quiet stream.

    Args:
        data_dir: holds one directory a stream.
        most: streams to look at.
        now_ms: ms since the Unix epoch.
    """
    about = "clock and broker"
    try:
        streams = scan(data_dir, ()).streams
    except OSError:
        return  # that is told of the directory
    # Those that were written to last come first, among them some that were only made.
    found = (_written(data_dir / each) for each in streams)
    written = list(islice((each for each in found if each), most))
    if not written:
        return
    age = (now_ms() - max(written)) / 1000
    if age < -SKEW_SECONDS:
        said = f"the broker's newest chunk is {_span(-age)} ahead of this machine's clock"
        yield warning(about, said, f"{_SYNCHRONISE} and of the brokers")
    else:
        yield ok(about, f"the newest chunk is {_span(max(age, 0.0))} old")


def _span(seconds: float) -> str:
    """A time as people say it."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def _written(directory: Path) -> int | None:
    """When a stream's newest chunk was written, ms; None if that cannot be told."""
    log = StreamLog(directory, DISK)
    try:
        near = log.chunks_near(_EVERYTHING, committed=_EVERYTHING)
        header = log.header_at(near[-1].chunk_id) if near else None
        return parse_chunk_header(header).timestamp if header else None
    except (ColdstreamError, OSError):
        return None  # the check of what is committed tells it


def of_difference(seconds: float, uncertain: float) -> Finding:
    """What a difference between this machine's clock and AWS's means.

    Args:
        seconds: that this machine is ahead; negative if it is behind.
        uncertain: by so many the difference may be wrong.
    """
    about = "clock and AWS"
    where = "ahead of" if seconds > 0 else "behind"
    said = f"this machine is {abs(seconds):,.1f} s {where} AWS (± {uncertain:.1f} s)"
    sure = abs(seconds) - uncertain
    if sure > SIGNATURE_SECONDS:
        return failed(about, f"{said}: AWS refuses its signatures", _SYNCHRONISE)
    if sure > SKEW_SECONDS:
        return warning(about, said, _SYNCHRONISE)
    return ok(about, f"they agree within {abs(seconds) + uncertain:.1f} s")
