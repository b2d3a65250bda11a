"""`--json-path PATH=VALUE`: which messages are wanted, by a value in a body that is JSON.

    customer.email=a@b.example   members by name, items of a list by number

An erasure must rather find too much than too little: a body is searched as it came and, if its
publisher says that it is compressed, inflated; of members with the same name any may have the
value; a number is met by its text, and by every other text of the same number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

from coldstream.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from coldstream.osiris.amqp import AmqpMessage

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)


class _Written(str):
    """A number of a JSON text, as it is written there."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A body that is JSON. Attributes: `document`: objects are tuples of pairs in it."""

    document: Any


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A comparison of a value in a JSON body.

    Attributes:
        path: names of members, and numbers of items, from the top down.
        value: text that it must have.
    """

    path: tuple[str, ...]
    value: str
    _document: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        body = _parsed(self.value)
        object.__setattr__(self, "_document", None if body is None else body.document)

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

    def holds(self, body: JsonBody) -> bool:
        """Whether a body has this value there."""
        found = [body.document]
        for name in self.path:
            found = [value for each in found for value in _below(each, name)]
        return any(map(self._is, found))

    def _is(self, found: Any) -> bool:
        match found:
            case _Written():
                return same_number(found, self.value)
            case str():
                return found == self.value
            case tuple() | list():
                return bool(found == self._document)
        return json.dumps(found) == self.value


def json_bodies(message: AmqpMessage) -> list[JsonBody]:
    """What of a message's body is JSON, as it came and inflated; empty if none is.

    A value of AMQP that is composed is taken for the JSON that the tables have of it.
    """
    found = (_parsed(each) for each in _texts(message))
    return [each for each in found if each is not None]


def same_number(text: str, other: str) -> bool:
    """Whether two texts are the same, or the same number: 1.50 and 1.5, 1e5 and 100000."""
    if text == other:
        return True
    if not (_NUMBER.fullmatch(text) and _NUMBER.fullmatch(other)):
        return False
    try:
        return Number(text) == Number(other)
    except ArithmeticError:  # an exponent that no number has
        return False


def _below(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, tuple):
        yield from (each for key, each in value if key == name)
    elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        yield value[int(name)]


def _texts(message: AmqpMessage) -> Iterator[bytes | str]:
    from coldstream.bodies.content import inflated
    from coldstream.bodies.steps import MAX_BODY_BYTES
    from coldstream.osiris.amqp import BodyKind
    from coldstream.osiris.amqp_json import value_to_jsonable

    body = message.data if message.body_kind is BodyKind.DATA else message.body
    if not isinstance(body, bytes | str):
        with suppress(RecursionError):
            yield json.dumps(value_to_jsonable(body))
        return
    yield body
    properties = message.properties
    encoding = None if properties is None else properties.content_encoding
    if encoding and isinstance(body, bytes):
        try:
            plain = inflated(body, encoding, MAX_BODY_BYTES)
        except CorruptDataError:
            return
        if plain is not body:
            yield plain


def _parsed(body: bytes | str) -> JsonBody | None:
    """None if it is no JSON, or more than may be in memory."""
    from coldstream.jobs.materialise.json_bodies.text import is_crowded

    try:
        text = (
            body
            if isinstance(body, str)
            else body.decode(json.detect_encoding(body), "surrogatepass")
        )
        if is_crowded(text):
            return None
        return JsonBody(
            json.loads(
                text.removeprefix("\ufeff"),
                object_pairs_hook=tuple,
                parse_int=_Written,
                parse_float=_Written,
                parse_constant=_Written,
            )
        )
    except (ValueError, RecursionError):
        return None
