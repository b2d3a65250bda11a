"""Decimals are numbers, as IEEE 754 encodes them in binary."""

from __future__ import annotations

from decimal import Decimal as Number

import pytest

from coldstream.osiris.amqp_types import Decimal
from coldstream.osiris.decimals import number_of


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("32800001", "1"),
        ("b18007cf", "-19.99"),
        ("00000000", "0E-101"),
        ("77f8967f", "9.999999E+96"),  # the greatest: its coefficient does not fit the usual place
        ("2fe38d7ea4c68000", "1.000000000000000"),
        ("31c0000000000001", "1"),
        ("3040000000000000000000000000000a", "10"),
        ("b03e00000000000000000000000007cf", "-199.9"),
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c00000000000000", "NaN"),
        ("6cb8967f", "9999999E+0"),
        ("6cb89680", "0"),  # ten million has a digit too many: not canonical
    ],
)
def test_the_bytes_of_a_decimal_are_its_number(raw: str, expected: str) -> None:
    assert str(number_of(Decimal(bytes.fromhex(raw)))) == str(Number(expected))
