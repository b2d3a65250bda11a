"""From a batch of queue messages to one `commit_runs` a stream, and what to say of each message.

Events carry no truth: they only name streams that are worth a look. Two kinds of message come in:

  * S3's event notification for a fragment or a hole (keys are URL-encoded in it, `+` for a space);
  * `{"stream": "<directory name>"}`, by which an agent or a person asks for a look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from coldstream.errors import (
    ColdstreamError,
    InternalError,
    InvalidInputError,
    UnavailableError,
)
from coldstream.names import check_stream, parse_data_key
from coldstream.ports import CommitRequests
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import CommitReport, commit_runs

_MAX_BODY = 256 * 1024  # SQS takes no more


@dataclass(frozen=True, slots=True)
class Mention:
    """A stream that a message names, and the object that it is about ("" and None if none)."""

    stream: str
    key: str
    offset: int | None = None

    def located(self, error: ColdstreamError) -> ColdstreamError:
        """`error` for this mention: a copy, because one error may fail many messages."""
        error = copy(error)
        if error.key is None and self.key:
            error.located(offset=self.offset, key=self.key)
        error.located(stream=self.stream)
        return error


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What came of a batch.

    Attributes:
        reports: one for each stream that was brought forward.
        failed: message id -> why it must be delivered again, in the end to the dead letters.
    """

    reports: tuple[CommitReport, ...]
    failed: Mapping[str, ColdstreamError]


def parse_message(body: str, prefix: str) -> tuple[Mention | InvalidInputError, ...]:
    """The streams that one message names; none for S3's own test message.

    Every record of an event speaks for itself: instead of one that has no key of ours there is the
    error that says why, and the good ones beside it count.

    Raises:
        InvalidInputError: it is no message that we know, or none of its records is.
    """
    try:
        message = json.loads(body[:_MAX_BODY])
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("a message that is not JSON") from exc
    if not isinstance(message, dict):
        raise InvalidInputError("a message that is not an object")
    if message.get("Event") == "s3:TestEvent":
        return ()
    if "stream" in message:
        if not isinstance(message["stream"], str):
            raise InvalidInputError("a message whose stream is not a string")
        return (Mention(check_stream(message["stream"]), ""),)
    records = message.get("Records")
    if not isinstance(records, list) or not records:
        raise InvalidInputError("a message that names neither a stream nor an object")
    found: list[Mention | InvalidInputError] = []
    for record in records:
        try:
            found.append(_mention(record, prefix))
        except InvalidInputError as exc:
            found.append(exc)
    if isinstance(found[0], InvalidInputError) and not any(isinstance(e, Mention) for e in found):
        raise found[0]
    return tuple(found)


def _mention(record: Any, prefix: str) -> Mention:
    try:
        key = unquote_plus(record["s3"]["object"]["key"])
    except (KeyError, TypeError, AttributeError) as exc:
        raise InvalidInputError("an event record without an object key") from exc
    data_key = parse_data_key(key, prefix)
    return Mention(data_key.stream, key, data_key.first_offset)


def _out_of_time() -> UnavailableError:
    # A new one each time: an error that is raised keeps all that was on the stack.
    return UnavailableError("no time was left; what was committed holds, the rest comes later")


def _named(
    prefix: str, messages: Iterable[tuple[str, str]], failed: dict[str, ColdstreamError]
) -> dict[str, list[tuple[str, Mention]]]:
    """The streams that messages name, with who names them; messages that cannot be read fail."""
    named: dict[str, list[tuple[str, Mention]]] = {}
    for message_id, body in messages:
        try:
            for mention in parse_message(body, prefix):
                if isinstance(mention, InvalidInputError):
                    failed.setdefault(message_id, mention)
                    continue
                named.setdefault(mention.stream, []).append((message_id, mention))
        except InvalidInputError as exc:
            failed[message_id] = exc
        except Exception as exc:  # noqa: BLE001 - whatever a message does, the others are read
            failed[message_id] = _unexpected(exc)
    return named


def _asked(requests: CommitRequests | None, stream: str) -> bool:
    """Whether a message will come for a stream."""
    if requests is None:
        return False
    try:
        requests.ask(stream)
    except ColdstreamError:
        return False
    return True


def _unexpected(exc: Exception) -> InternalError:
    error = InternalError(f"{type(exc).__name__}: {exc}")
    error.__cause__ = exc
    return error


def handle_messages(
    context: Context,
    messages: Iterable[tuple[str, str]],
    *,
    pause: Callable[[int], None],
    time_left: Callable[[], bool] = lambda: True,
    requests: CommitRequests | None = None,
) -> BatchReport:
    """Bring forward every stream that the messages name, each once.

    A message fails alone: because it or one of its records cannot be read, because its stream
    cannot be brought forward (or not in time, or because of a bug of ours), or because the very
    object that it announces was refused. What else it names is done all the same.

    A stream of which there is more than one call has time for is asked for anew, if that works: a
    message that comes back counts as failed, and after a few times it is a dead letter, although
    nothing is wrong with a long backlog.

    Args:
        context: where.
        messages: (message id, body) pairs.
        pause: as in `commit_runs`.
        time_left: as in `commit_runs`; streams that it leaves no time for fail untouched.
        requests: takes streams that are to be looked at again; None if they all fail.
    """
    failed: dict[str, ColdstreamError] = {}
    named = _named(context.prefix, messages, failed)
    reports: list[CommitReport] = []
    for stream, mentions in named.items():
        try:
            if not time_left():
                if reports and _asked(requests, stream):
                    continue
                raise _out_of_time()
            report = commit_runs(context, stream, pause=pause, time_left=time_left)
        except Exception as exc:  # noqa: BLE001 - also a bug of ours that one stream's objects show
            error = exc if isinstance(exc, ColdstreamError) else _unexpected(exc)
            failed.update((message_id, mention.located(error)) for message_id, mention in mentions)
            continue
        reports.append(report)
        # Without a commit it would be asked for without end.
        if report.more and not (report.commits and _asked(requests, stream)):
            failed.update(
                (message_id, mention.located(_out_of_time())) for message_id, mention in mentions
            )
        refused = {each.key: each for each in report.refused}
        failed.update(
            (message_id, refused[mention.key])
            for message_id, mention in mentions
            if mention.key in refused
        )
    return BatchReport(tuple(reports), failed)
