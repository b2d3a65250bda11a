"""What an agent asks of the function `claim`, which alone may write a catalog item or a manifest.

A request and its answer are JSON objects. A request has an "ask" and a "stream":

    open     anchor the stream unless it is known, set its name, claim it
    commit   commit what follows the manifest
    declare  PUT a hole over offsets that no member has any more

The answer has one of: "question", which the agent answers in the same request sent again;
"error"; or what was done. It is for people and for the next step of the agent. What holds is in the
bucket and the catalog: an agent that got no answer looks there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coldstream import errors
from coldstream.errors import ColdstreamError, InvalidInputError, UnavailableError
from coldstream.manifest.catalog import QueueName
from coldstream.names import MAX_EPOCH, MAX_NAME, MAX_OFFSET, check_stream
from coldstream.plans.claim import LocalChunk
from coldstream.plans.told_log import Question, ToldLog, checked
from coldstream.plans.truncate import Truncation

#: Bytes of a request or an answer: what Lambda takes in one synchronous call.
MAX_MESSAGE = 6_000_000
_MAX_REFUSED = 200  # errors in an answer; each has a sentence and a key
_MAX_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Open:
    """Begin to write a stream.

    Attributes:
        stream: directory name.
        epoch: of a committed chunk that the local log holds, and the shift.
        anchor: where the log begins, for the first item of a stream; None if there is one.
        name: which queue it belongs to; an empty one changes nothing.
        said: of the committed part of the log.
        shift: of the root, as it was when `epoch` was made of it.
    """

    stream: str
    epoch: int
    anchor: int | None
    name: QueueName
    said: ToldLog
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit what follows the manifest; see `commit_runs`."""

    stream: str
    thorough: bool = False


@dataclass(frozen=True, slots=True)
class Declare:
    """PUT a hole.

    Attributes:
        stream: directory name.
        epoch: of the claim under which the agent writes.
        first_offset: of the gap.
        next_offset: of the gap.
        log_first: where the local log begins.
    """

    stream: str
    epoch: int
    first_offset: int
    next_offset: int
    log_first: int


Request = Open | Commit | Declare


def encode(request: Request) -> bytes:
    """A request as it is sent.

    Raises:
        InvalidInputError: it is larger than one call takes.
    """
    row: dict[str, Any]
    match request:
        case Open():
            name = request.name
            row = {
                "ask": "open",
                "epoch": request.epoch,
                "shift": request.shift,
                "anchor": request.anchor,
                "name": [name.cluster, name.vhost, name.queue],
                # Beside the name, so that a function of an older release passes over it.
                "partition": [name.super_stream, name.routing_key],
                "said": request.said.to_json(),
            }
        case Commit():
            row = {"ask": "commit", "thorough": request.thorough}
        case Declare():
            row = {
                "ask": "declare",
                "epoch": request.epoch,
                "first": request.first_offset,
                "next": request.next_offset,
                "log_first": request.log_first,
            }
    data = json.dumps({**row, "stream": request.stream}, separators=(",", ":")).encode()
    if len(data) > MAX_MESSAGE:
        raise InvalidInputError(
            f"a request of {len(data)} bytes, and one call takes {MAX_MESSAGE}: the chunks of one"
            " fragment are too many to be compared; claim with rights of your own"
            " (`coldstream agent run --once` without --claim-function)",
            stream=request.stream,
        )
    return data


def parse(row: Any) -> Request:
    """A request from its JSON, which may be anything.

    Raises:
        InvalidInputError: it is none.
    """
    if not isinstance(row, dict) or not isinstance(row.get("stream"), str):
        raise InvalidInputError("a request that names no stream")
    stream = check_stream(row["stream"])
    try:
        match row.get("ask"):
            case "open":
                anchor = row.get("anchor")
                return Open(
                    stream,
                    _epoch(row),
                    None if anchor is None else checked(anchor, "anchor", MAX_OFFSET),
                    _name(row.get("name"), row.get("partition", ["", ""])),
                    ToldLog.from_json(row.get("said")),
                    checked(row.get("shift", 0), "shift", MAX_EPOCH),
                )
            case "commit":
                return Commit(stream, row.get("thorough") is True)
            case "declare":
                first, end, log = (
                    checked(row.get(each), each, MAX_OFFSET)
                    for each in ("first", "next", "log_first")
                )
                return Declare(stream, _epoch(row), first, end, log)
    except InvalidInputError as exc:
        raise exc.located(stream=stream) from None
    raise InvalidInputError("a request for something unknown", stream=stream)


def _epoch(row: Mapping[str, Any]) -> int:
    epoch = checked(row.get("epoch"), "epoch", MAX_EPOCH)
    if not epoch:
        raise InvalidInputError("epoch: a number from 1 is wanted")
    return epoch


def _name(parts: Any, partition: Any) -> QueueName:
    if not isinstance(parts, list) or len(parts) != 3:
        raise InvalidInputError("name: cluster, vhost and queue are wanted")
    if not isinstance(partition, list) or len(partition) != 2:
        raise InvalidInputError("partition: super stream and routing key are wanted")
    parts = parts + partition
    for part in parts:
        if not isinstance(part, str) or len(part) > MAX_NAME:
            raise InvalidInputError(f"name: at most {MAX_NAME} characters are wanted")
        if any("\ud800" <= each <= "\udfff" for each in part):
            raise InvalidInputError("name: a surrogate")
    return QueueName(*parts)


# --- answers ---


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did, in an answer; the root is in the bucket.

    Attributes:
        next_offset: of the manifest.
        commits: how many roots landed.
        fragments: how many fragments were appended.
        waiting: whether a hole at the end of the manifest waits for a fragment behind it.
        more: whether fragments are left that time did not allow for.
        refused: one error a fragment that was left out.
    """

    next_offset: int
    commits: int
    fragments: int
    waiting: bool
    more: bool
    refused: tuple[ColdstreamError, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it; not all errors if there are very many."""
        return {
            "next_offset": self.next_offset,
            "commits": self.commits,
            "fragments": self.fragments,
            "waiting": self.waiting,
            "more": self.more,
            "refused": [error_to_json(each) for each in self.refused[:_MAX_REFUSED]],
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Committed:
        """The inverse."""
        return cls(
            next_offset=row["next_offset"],
            commits=row["commits"],
            fragments=row["fragments"],
            waiting=row["waiting"],
            more=row["more"],
            refused=tuple(error_from_json(each) for each in row["refused"]),
        )


def truncation_to_json(done: Truncation | None) -> dict[str, Any] | None:
    """What a claim has cut off, as JSON holds it."""
    if done is None:
        return None
    evidence = done.evidence
    return {
        "epoch": done.epoch,
        "offset": done.offset,
        "old": [done.old_first_offset, done.old_next_offset],
        "anew": done.anew,
        "evidence": [evidence.chunk_id, evidence.next_offset, evidence.epoch],
        "fragments": done.fragments,
        "bytes": done.bytes,
        "record_key": done.record_key,
    }


def truncation_from_json(row: Mapping[str, Any] | None) -> Truncation | None:
    """The inverse."""
    if row is None:
        return None
    return Truncation(
        epoch=row["epoch"],
        offset=row["offset"],
        old_first_offset=row["old"][0],
        old_next_offset=row["old"][1],
        anew=row["anew"],
        evidence=LocalChunk(*row["evidence"]),
        fragments=row["fragments"],
        bytes=row["bytes"],
        record_key=row["record_key"],
    )


_ERRORS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, ColdstreamError)
}


def error_to_json(error: ColdstreamError) -> dict[str, Any]:
    """An error as JSON holds it: of its class the nearest one of `coldstream.errors`."""
    name = next(each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS)
    return {
        "error": name,
        "message": error.reason[:_MAX_WORDS],
        "stream": error.stream,
        "offset": error.offset,
        "key": error.key,
    }


def error_from_json(row: Mapping[str, Any]) -> ColdstreamError:
    """The inverse; of a class that this release does not know, one that is tried again."""
    error = _ERRORS.get(row["error"], UnavailableError)(row["message"])
    return error.located(stream=row["stream"], offset=row["offset"], key=row["key"])


def question_of(answer: Mapping[str, Any]) -> Question | None:
    """The question in an answer, None if it has none."""
    return Question.from_json(answer["question"]) if "question" in answer else None
