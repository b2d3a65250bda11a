"""Bodies of one line: comma-separated values and text."""

from __future__ import annotations

import json

import pytest

from coldstream.bodies.lines import csv_body, text_body
from coldstream.errors import CorruptDataError

FIELDS = (("id", "number"), ("name", "text"), ("paid", "boolean"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"7,anna,true", (7, "anna", True)),
        (b"-1.5e3,,FALSE\r\n", (-1500.0, None, False)),
        (b'"8","a, ""b""\nc",\n', (8, 'a, "b"\nc', None)),
        (b" 9 , x ,yes", (9, " x ", "yes")),
        (b"007,7,1", ("007", "7", "1")),
        ("1,größe,true".encode(), (1, "größe", True)),
        # Python takes these for ends of a line, CSV does not.
        ("1,a\u2028b\x85c\x0bd\x0ce\x1cf,true".encode(), (1, "a\u2028b\x85c\x0bd\x0ce\x1cf", True)),
        ('1,"a\u2028b\u2029c",true'.encode(), (1, "a\u2028b\u2029c", True)),
        ('\ufeff"7","anna",true'.encode(), (7, "anna", True)),
        (b"1," + b"x" * 200_000 + b",true", (1, "x" * 200_000, True)),
    ],
)
def test_a_record_is_an_object_whose_numbers_are_numbers(
    body: bytes, expected: tuple[object, ...]
) -> None:
    assert json.loads(csv_body(body, FIELDS)) == dict(
        zip([name for name, _ in FIELDS], expected, strict=True)
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"1,2", "2 fields, and 3 are declared"),
        (b"1,2,3,4", "4 fields"),
        (b"", "0 records"),
        (b"1,2,3\n4,5,6", "2 records"),
        (b"\xff,2,3", "UTF-8"),
        (b'1,"2,3', "no CSV"),
    ],
)
def test_what_is_not_one_record_of_these_fields_says_why(body: bytes, words: str) -> None:
    with pytest.raises(CorruptDataError, match=words):
        csv_body(body, FIELDS)


def test_text_is_one_field_without_the_end_of_its_line() -> None:
    assert json.loads(text_body(b'a "b"\tc\r\n')) == {"text": 'a "b"\tc'}
    with pytest.raises(CorruptDataError, match="UTF-8"):
        text_body(b"\xff")
