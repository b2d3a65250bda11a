"""Bodies of one line, as JSON: comma-separated values, and plain text."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from io import StringIO

from coldstream.errors import CorruptDataError

#: The field that has a body of text.
TEXT_FIELD = "text"
# Python's own limit is 128 KiB a field, in all of the process; a body has its own limit.
csv.field_size_limit(sys.maxsize)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def text_body(body: bytes) -> bytes:
    """A body of text: `{"text": …}`, a line end at its end cut off.

    Raises:
        CorruptDataError: it is no UTF-8.
    """
    return _json(f"{json.dumps(TEXT_FIELD)}:{_quoted(_text(body))}")


def csv_body(body: bytes, fields: Sequence[tuple[str, str]]) -> bytes:
    """A body of comma-separated values, quoted as in RFC 4180.

    Args:
        body: one record; its fields may have line ends within quotes. A byte order mark in front
            of it is none of its first field.
        fields: names and types (text, number, boolean or word) in order. What is empty is null, and
            what is no number or no boolean stays text, so that it is told as what does not fit. A
            word is text without the blanks around it, as numbers and booleans are taken.

    Raises:
        CorruptDataError: it is no UTF-8, not one record, or has other fields.
    """
    try:
        # Not by `splitlines`, which knows more ends of lines than CSV does.
        lines = StringIO(_text(body).removeprefix("\ufeff"), newline="")
        rows = list(csv.reader(lines, strict=True))
    except csv.Error as exc:
        raise CorruptDataError(f"the body is no CSV: {exc}") from exc
    if len(rows) != 1:
        raise CorruptDataError(f"the body has {len(rows)} records of CSV, not one")
    (row,) = rows
    if len(row) != len(fields):
        raise CorruptDataError(f"the body has {len(row)} fields, and {len(fields)} are declared")
    pairs = zip(fields, row, strict=True)
    return _json(
        ",".join(f"{json.dumps(name)}:{_cell(kind, text)}" for (name, kind), text in pairs)
    )


def _cell(kind: str, text: str) -> str:
    if not text:
        return "null"
    bare = text.strip()
    if kind == "boolean" and bare.lower() in ("true", "false"):
        return bare.lower()
    if kind == "number" and _NUMBER.fullmatch(bare):
        return bare
    return _quoted(bare if kind == "word" and bare else text)


def _text(body: bytes) -> str:
    try:
        return body.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as exc:
        raise CorruptDataError("the body is no UTF-8") from exc


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json(inside: str) -> bytes:
    return f"{{{inside}}}".encode()
