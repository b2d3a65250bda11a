"""`--where NAME=VALUE`: which messages are wanted, by their properties; by bodies: `json_path.py`.

    region=eu                    application property `region`
    properties.subject!=order    standard property `subject`, as Spark's column has it

Values are compared as text: booleans as true and false, times in ms, bytes as UTF-8; numbers also
by their value. `!=` also holds where there is no such property.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.json_path import JsonCondition, json_bodies, same_number
from coldstream.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from coldstream.osiris.amqp import AmqpMessage
    from coldstream.osiris.body import BodyFormat
    from coldstream.osiris.chunk import Buffer
    from coldstream.reader import Message

_STANDARD, _OWN = "properties.", "application_properties."

WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="NAME=VALUE",
        help="Only messages whose application property has this value, or properties.NAME; also "
        "NAME!=VALUE; given several times, all must hold.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison.

    Attributes:
        standard: whether `name` is of the standard properties, or of the application's.
        name: of the property.
        value: text that it must have.
        equal: or must not have.
    """

    standard: bool
    name: str
    value: str
    equal: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """From what a person typed.

        Raises:
            InvalidInputError: it is none, or there is no such standard property.
        """
        from coldstream.osiris.amqp import Properties

        name, equals, value = text.partition("=")
        equal = not name.endswith("!")
        name = name.removesuffix("!")
        standard = name.startswith(_STANDARD)
        name = name.removeprefix(_STANDARD if standard else _OWN)
        if not equals or not name:
            raise InvalidInputError(f"--where takes NAME=VALUE or NAME!=VALUE, not {text[:80]!r}")
        known = [each.name for each in fields(Properties)]
        if standard and name not in known:
            raise InvalidInputError(
                f"there is no standard property {name[:80]!r}; there are {', '.join(known)}"
            )
        return cls(standard, name, value, equal)

    def holds(self, message: AmqpMessage) -> bool:
        """Whether a message is as wanted."""
        found: object = None
        if self.standard:
            found = getattr(message.properties, self.name, None)
        else:
            own: Mapping[str, object] = message.application_properties or {}
            found = own.get(self.name)
        return (found is not None and self._is(found)) is self.equal

    def _is(self, found: object) -> bool:
        if isinstance(found, str | bytes):
            return _text(found) == self.value
        return same_number(_text(found), self.value)


class Matching:
    """The messages that meet every condition.

    Args:
        conditions: of properties; all must hold.
        body_format: how messages are read; plain bytes have no properties.
        by_body: conditions of JSON bodies; all must hold, too, in one reading of a body.

    Attributes:
        unreadable: messages so far that cannot be read so, and meet none.
        unsearched: messages so far whose bodies are no JSON, and meet none of `by_body`; those
            without a body and those that are erased do not count.
    """

    def __init__(
        self,
        conditions: Iterable[Condition],
        body_format: BodyFormat,
        by_body: Iterable[JsonCondition] = (),
    ) -> None:
        self._conditions = tuple(conditions)
        self._body_format = body_format
        self._by_body = tuple(by_body)
        self.unreadable = 0
        self.unsearched = 0

    def of(self, messages: Generator[Message]) -> Generator[Message]:
        """Those of `messages`, in order; closing it closes them."""
        from coldstream.osiris.body import read_message

        with closing(messages):
            for each in messages:
                try:
                    decoded = read_message(each.body, self._body_format)
                except CorruptDataError:
                    self.unreadable += 1
                    continue
                if all(condition.holds(decoded) for condition in self._conditions) and (
                    not self._by_body or self._body_holds(each.body, decoded)
                ):
                    yield each

    def _body_holds(self, wire: Buffer, message: AmqpMessage) -> bool:
        from coldstream.osiris.blank import is_blank

        bodies = json_bodies(message)
        if not bodies and (message.data or message.body) and not is_blank(wire):
            self.unsearched += 1
        return any(all(one.holds(body) for one in self._by_body) for body in bodies)


def _text(value: object) -> str:
    from coldstream.osiris.amqp_json import value_to_jsonable
    from coldstream.osiris.amqp_types import Decimal
    from coldstream.osiris.decimals import number_of

    if isinstance(value, Decimal):
        return str(number_of(value))
    if isinstance(value, float):
        return repr(value)
    known = value_to_jsonable(value)  # type: ignore[arg-type]  # of a message, so it is one
    return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)
