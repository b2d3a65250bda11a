"""The sections of a message with the types that its values were sent with."""

from __future__ import annotations

from coldstream.osiris.amqp import Section, read_section
from coldstream.osiris.amqp_types import Value, ValueReader
from coldstream.osiris.chunk import Buffer


def typed_sections(buf: Buffer) -> dict[Section, list[Value]]:
    """The values of each section, in order; `amqp_types.Typed` where they are not composed.

    Args:
        buf: a message that `decode_message` takes: order and types of sections are not looked at.

    Raises:
        CorruptDataError: a value does not hold.
    """
    reader = ValueReader(buf, typed=True)
    found: dict[Section, list[Value]] = {}
    while reader.left:
        found.setdefault(read_section(reader), []).append(reader.read())
    return found
