"""`--where NAME=VALUE`: which messages are wanted, by their properties; `--json-path`, by bodies.

    region=eu                    application property `region`
    properties.subject!=order    standard property `subject`, as Spark's column has it
    customer.email=a@b.example   of a JSON body: members by name, items of a list by number

Values are compared as text: numbers as they are written, booleans as true and false, times in ms,
bytes as UTF-8. `!=` also holds where there is no such property.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from coldstream.osiris.amqp import AmqpMessage
    from coldstream.osiris.body import BodyFormat
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
        return (found is not None and _text(found) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A comparison of a value in a JSON body.

    Attributes:
        path: names of members, and numbers of items, from the top down.
        value: text that it must have.
    """

    path: tuple[str, ...]
    value: str

    @classmethod
    def parse(cls, text: str) -> JsonCondition:
        """From what a person typed: PATH=VALUE, with or without "$." before it.

        Raises:
            InvalidInputError: it is none.
        """
        path, equals, value = text.partition("=")
        names = tuple(path.removeprefix("$").removeprefix(".").split("."))
        if not equals or not all(names):
            raise InvalidInputError(
                "--json-path takes PATH=VALUE such as customer.email=a@b.example, not"
                f" {text[:80]!r}"
            )
        return cls(names, value)

    def holds(self, message: AmqpMessage) -> bool:
        """Whether a message has a JSON body with this value there."""
        body = message.body if isinstance(message.body, bytes | str) else message.data
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return False
        for name in self.path:
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return text == self.value


class Matching:
    """The messages that meet every condition.

    Args:
        conditions: all must hold.
        body_format: how messages are read; plain bytes have no properties.

    Attributes:
        unreadable: messages so far that cannot be read so, and meet none.
    """

    def __init__(
        self, conditions: Iterable[Condition | JsonCondition], body_format: BodyFormat
    ) -> None:
        self._conditions = tuple(conditions)
        self._body_format = body_format
        self.unreadable = 0

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
                if all(condition.holds(decoded) for condition in self._conditions):
                    yield each


def _text(value: object) -> str:
    from coldstream.osiris.amqp_json import value_to_jsonable

    known = value_to_jsonable(value)  # type: ignore[arg-type]  # of a message, so it is one
    return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)
