"""What holds for declared fields, however they are written down."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.schema import MAX_DEPTH, MAX_FIELDS, RESERVED, can_be_column


def checked(fields: Sequence[pa.Field], path: str = "") -> pa.Schema:
    """Fields that a table can have beside each other.

    Raises:
        InvalidInputError: a name cannot be one, or is there twice.
    """
    if not fields or len(fields) > MAX_FIELDS:
        where = f"{path[:-1]!r}" if path else "the schema"
        raise InvalidInputError(f"{where} has {len(fields)} fields; there are 1 to {MAX_FIELDS}")
    seen: set[str] = set()
    for field in fields:
        lower = field.name.lower()
        if not can_be_column(field.name) or (not path and lower in RESERVED):
            raise InvalidInputError(
                f"{path + field.name!r} cannot be a column: a name has none of . ` , : ; < > and is"
                " none of ours"
            )
        if lower in seen:
            raise InvalidInputError(
                f"{path + field.name!r} is there twice; upper case makes no difference to a catalog"
            )
        seen.add(lower)
    return pa.schema(fields)


def field_of(name: str, kind: pa.DataType, *, required: bool) -> pa.Field:
    """A field; one that is required may not be null, and so must be there."""
    return pa.field(name, kind, nullable=not required)


def struct_of(fields: Sequence[pa.Field], path: str) -> pa.DataType:
    """The type of an object.

    Raises:
        InvalidInputError: as `checked`.
    """
    return pa.struct(list(checked(fields, f"{path}.")))


def decimal_of(precision: int, scale: int, path: str) -> pa.DataType:
    """The type of a decimal.

    Raises:
        InvalidInputError: no decimal has so many digits.
    """
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise InvalidInputError(
            f"{path}: decimal({precision},{scale}) has 1 to 38 digits, and no more behind the point"
        )
    return pa.decimal128(precision, scale)


def deeper(depth: int, path: str) -> int:
    """How deep an object or a list within this one may still be.

    Raises:
        InvalidInputError: not at all.
    """
    if not depth:
        raise InvalidInputError(f"{path} is nested more than {MAX_DEPTH} deep")
    return depth - 1
