"""Messages on stdout: as text, as JSON lines, or as their wire bytes.

A message that is no AMQP 1.0 (publishers may write anything) is a body of plain bytes. Where that
is an error (--body-format amqp), it is still never dropped: text shows its bytes, JSON carries them
in base64 with the reason.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.output import MAX_ROWS_ASKED, when
from coldstream.errors import CorruptDataError

if TYPE_CHECKING:
    from coldstream.osiris.body import BodyFormat
    from coldstream.reader import Gap, Message

_PREVIEW_BYTES = 64
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        min=0,
        max=MAX_ROWS_ASKED,
        help="The most messages to print.",
        show_default="all",
    ),
]
BodyFormatOption = Annotated[
    str,
    typer.Option(
        "--body-format",
        metavar="auto|amqp|bytes",
        help="How messages are read. auto: what is no AMQP 1.0 is plain bytes; amqp: it is an "
        "error; bytes: nothing is AMQP 1.0.",
    ),
]


class Output(StrEnum):
    """How messages are written."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


def write(
    messages: Generator[Message], output: Output, limit: int | None, body_format: str = "auto"
) -> None:
    """Write messages, at most `limit` of them, and close what gives them.

    Raises:
        InvalidInputError: there is no such body format.
    """
    from coldstream.osiris.body import parse_body_format

    given = parse_body_format(body_format)
    writers: dict[Output, Callable[[Iterable[Message]], None]] = {
        Output.TEXT: partial(write_text, body_format=given),
        Output.JSON: partial(write_json, body_format=given),
        Output.RAW: write_raw,
    }
    with closing(messages):
        writers[output](islice(messages, limit))
    sys.stdout.flush()


def write_raw(messages: Iterable[Message]) -> None:
    """The wire bytes of the messages, concatenated, and nothing else."""
    write = sys.stdout.buffer.write
    for each in messages:
        write(each.body)
    sys.stdout.buffer.flush()


def write_json(messages: Iterable[Message], body_format: BodyFormat) -> None:
    """One object a line, in UTF-8 whatever the locale; see `as_json`."""
    write = sys.stdout.buffer.write
    for each in messages:
        write(json.dumps(as_json(each, body_format), ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def write_gap(gap: Gap) -> None:
    """A line that says which offsets are passed over, between the messages around them."""
    place = {"first": gap.first_offset, "next": gap.next_offset, "reason": str(gap.reason)}
    sys.stdout.buffer.write(json.dumps({"gap": place}).encode() + b"\n")


def write_text(messages: Iterable[Message], body_format: BodyFormat) -> None:
    """Offset, time and body, separated by tabs; a body that is no text as a hex preview."""
    for each in messages:
        sys.stdout.write(f"{each.offset}\t{when(each.timestamp)}\t{as_text(each, body_format)}\n")


def as_json(message: Message, body_format: BodyFormat) -> dict[str, Any]:
    """A message as JSON: `offset`, `timestamp` (ms), `time`, and `message` with the AMQP sections.

    One of plain bytes has the `body_kind` bytes, and no section. Where AMQP 1.0 is asked for and
    the message is none, `body_base64` has its wire bytes and `error` the reason.
    """
    from coldstream.osiris.amqp_json import to_jsonable
    from coldstream.osiris.body import read_message

    document: dict[str, Any] = {
        "offset": message.offset,
        "timestamp": message.timestamp,
        "time": when(message.timestamp),
    }
    try:
        document["message"] = to_jsonable(read_message(message.body, body_format))
    except CorruptDataError as error:
        document["body_base64"] = base64.b64encode(message.body).decode("ascii")
        document["error"] = error.reason
    return document


def as_text(message: Message, body_format: BodyFormat) -> str:
    """The body on one line: text where it is text, else the first bytes in hex."""
    from coldstream.osiris.amqp import BodyKind
    from coldstream.osiris.amqp_json import to_jsonable
    from coldstream.osiris.body import read_message

    try:
        decoded = read_message(message.body, body_format)
    except CorruptDataError:
        return _bytes_as_text(bytes(message.body))
    if decoded.body_kind in (BodyKind.DATA, BodyKind.NONE):
        return _bytes_as_text(decoded.data)
    if decoded.body_kind is BodyKind.BYTES:
        return _bytes_as_text(bytes(message.body))
    body = to_jsonable(decoded)["body"]
    return _one_line(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))


def _bytes_as_text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(c.isprintable() or c in "\n\r\t\x1b" for c in text):
        return _one_line(text)
    more = f"... ({len(body)} bytes)" if len(body) > _PREVIEW_BYTES else ""
    return f"0x{body[:_PREVIEW_BYTES].hex()}{more}"


def _one_line(text: str) -> str:
    """Text without anything that would break the line or drive a terminal."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
