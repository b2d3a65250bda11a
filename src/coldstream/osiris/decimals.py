"""IEEE 754 decimal numbers: bytes -> value, in the binary integer encoding that AMQP 1.0 asks for.

    sign 1 bit │ exponent │ coefficient, a binary integer        unless the exponent begins with 11
    sign 1 bit │ 11 │ exponent │ coefficient, behind binary 100 that is not written
    sign 1 bit │ 11110 infinity, 11111 no number

Source: IEEE 754-2008 section 3.5.2; OASIS AMQP 1.0 part 1, section 1.6.13 to 1.6.15.
"""

from __future__ import annotations

from decimal import Decimal as Number

from coldstream.osiris.amqp_types import Decimal

#: By bytes: bits of the exponent, its bias, digits.
_LAYOUTS = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}


def number_of(decimal: Decimal) -> Number:
    """The number that 4, 8 or 16 bytes are; infinity and NaN, too."""
    exponent_bits, bias, digits = _LAYOUTS[len(decimal.raw)]
    width = 8 * len(decimal.raw)
    bits = int.from_bytes(decimal.raw, "big")
    sign = bits >> (width - 1)
    special = bits >> (width - 6) & 0b11111
    if special == 0b11111:
        return Number("NaN")
    if special == 0b11110:
        return Number("-Infinity" if sign else "Infinity")
    implied = special >> 3 == 0b11
    rest = width - 1 - exponent_bits - (2 if implied else 0)
    exponent = (bits >> rest) & (2**exponent_bits - 1)
    coefficient = bits & (2**rest - 1)
    if implied:
        coefficient |= 0b100 << rest
    if coefficient >= 10**digits:
        coefficient = 0  # as the standard says of what is not canonical
    return Number((sign, tuple(map(int, str(coefficient))), exponent - bias))
