"""What the bytes of a message are: AMQP 1.0, or whatever else a publisher has put into a stream.

RabbitMQ stores what it is given. Its own protocols give it AMQP 1.0; clients of the stream protocol
may publish plain bytes (rstream and rbfly do, when given bytes), and a stream may hold both. The
bytes are not damaged: the CRC32 of their chunk covers them.
"""

from __future__ import annotations

from enum import StrEnum

from coldstream.errors import CorruptDataError, InvalidInputError
from coldstream.osiris.amqp import AmqpMessage, BodyKind, decode_message
from coldstream.osiris.chunk import Buffer


class BodyFormat(StrEnum):
    """How the bytes of messages are read.

    AUTO takes what is no AMQP 1.0 for plain bytes, AMQP refuses it, BYTES never looks.
    """

    AUTO = "auto"
    AMQP = "amqp"
    BYTES = "bytes"


def parse_body_format(text: str) -> BodyFormat:
    """A format as people write it.

    Raises:
        InvalidInputError: there is no such format.
    """
    try:
        return BodyFormat(text.lower())
    except ValueError as exc:
        words = ", ".join(BodyFormat)
        raise InvalidInputError(f"a body format is one of {words}, not {text[:80]!r}") from exc


def read_message(wire: Buffer, body_format: BodyFormat = BodyFormat.AUTO) -> AmqpMessage:
    """A message; one of plain bytes has a body of the kind BYTES and nothing else.

    Args:
        wire: its bytes.
        body_format: how they are read.

    Raises:
        CorruptDataError: it is no AMQP 1.0, and must be.
    """
    if body_format is not BodyFormat.BYTES:
        try:
            return decode_message(wire)
        except CorruptDataError:
            if body_format is BodyFormat.AMQP:
                raise
    return AmqpMessage(body_kind=BodyKind.BYTES, body=bytes(wire))
