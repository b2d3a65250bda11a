"""Declared fields as lines of `name: type`, such as `price: decimal(12,2) required`."""

from __future__ import annotations

import re

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.declared.checks import (
    checked,
    decimal_of,
    deeper,
    field_of,
    struct_of,
)
from coldstream.jobs.materialise.kinds import WORDS
from coldstream.jobs.materialise.schema import MAX_DEPTH

_LINE = re.compile(r'\s*(?:"([^"]*)"|([^:"\s]+))\s*:\s*(.*?)\s*(\brequired)?\s*')
_TOKEN = re.compile(r"\s*([<>(),:]|[^<>(),:\s]+)")
_SAME = {"bool": "boolean", "integer": "int", "bigint": "long", "text": "string"}
_WORDS = {name: kind for name, kind in WORDS.items() if name != "binary"}


def of_lines(text: str) -> pa.Schema:
    """Fields, one a line; an empty line and one that begins with # say nothing.

    Raises:
        InvalidInputError: a line is no `name: type`.
    """
    fields = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise InvalidInputError(
                f"line {number} of the schema is not `name: type`: {line[:80]!r}"
            )
        quoted, bare, kind, required = found.groups()
        name = bare if quoted is None else quoted
        fields.append(field_of(name, _Words(kind, name).whole(), required=bool(required)))
    return checked(fields)


class _Words:
    """A type in words, read from left to right.

    Args:
        text: the type.
        path: of the field that has it, for errors.
    """

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._tokens: list[str] = _TOKEN.findall(text)[::-1]

    def whole(self) -> pa.DataType:
        """The type that all of the text is.

        Raises:
            InvalidInputError: it is none.
        """
        kind = self._kind(self._path, MAX_DEPTH)
        if self._tokens:
            raise self._wrong()
        return kind

    def _kind(self, path: str, depth: int) -> pa.DataType:
        word = self._next().lower()
        word = _SAME.get(word, word)
        if word in _WORDS:
            return _WORDS[word]
        if word == "decimal":
            return self._decimal(path)
        if word in ("list", "array"):
            self._take("<")
            value = self._kind(path, deeper(depth, path))
            self._take(">")
            return pa.list_(value)
        if word == "map":
            self._take("<")
            self._take("string")
            self._take(",")
            value = self._kind(path, deeper(depth, path))
            self._take(">")
            return pa.map_(pa.string(), value)
        if word == "struct":
            return self._struct(path, deeper(depth, path))
        raise self._wrong()

    def _struct(self, path: str, depth: int) -> pa.DataType:
        self._take("<")
        fields = []
        while True:
            name = self._next()
            self._take(":")
            fields.append(pa.field(name, self._kind(f"{path}.{name}", depth)))
            if (mark := self._next()) == ">":
                return struct_of(fields, path)
            if mark != ",":
                raise self._wrong()

    def _decimal(self, path: str) -> pa.DataType:
        self._take("(")
        precision = self._next()
        self._take(",")
        scale = self._next()
        self._take(")")
        if not (precision.isdecimal() and scale.isdecimal()):
            raise self._wrong()
        return decimal_of(int(precision[:9]), int(scale[:9]), path)

    def _next(self) -> str:
        if not self._tokens:
            raise self._wrong()
        return self._tokens.pop()

    def _take(self, mark: str) -> None:
        if self._next().lower() != mark:
            raise self._wrong()

    def _wrong(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self._path}: {self._text[:80]!r} is no type; there are {', '.join(_WORDS)},"
            " decimal(p,s), list<…>, map<string,…> and struct<name: …, …>"
        )
