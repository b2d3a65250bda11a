"""What a rule says of a table of the last message of each key: which key, and what without one.

{"streams": "customers", "table": "shop.customers", "body": "json",
 "latest": "properties.message_id", "buckets": 16, "keyless": "dead-letter"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from coldstream.columns.schema import PROPERTIES
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.buckets import Buckets

#: A file is open for each bucket while a task writes.
MAX_BUCKETS = 256
DEFAULT_BUCKETS = 16
#: A worker holds the keys of one bucket; nobody's key is as long as a message.
MAX_KEY_BYTES = 1024
_NUMBER = re.compile(r"[0-9]{1,9}")


class Section(StrEnum):
    """The part of a message that a key is in."""

    PROPERTIES = "properties"
    APPLICATION_PROPERTIES = "application_properties"
    BODY = "body"


class Keyless(StrEnum):
    """What becomes of a message without a key; it is counted either way."""

    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class LatestKey:
    """Which value of a message is its key.

    Attributes:
        section: where it is.
        path: name of the property; in a body names of members, and numbers of items of lists.
    """

    section: Section
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> LatestKey:
        """From what a rule says, such as `properties.message_id` or `body.customer.id`.

        Raises:
            InvalidInputError: it names no value.
        """
        section, _, rest = text.partition(".")
        parts = tuple(rest.split(".")) if section == Section.BODY else (rest,)
        if section not in list(Section) or not all(parts):
            raise InvalidInputError(
                "latest is properties.NAME, application_properties.NAME or body.PATH (members by"
                f" name, items of lists by number), not {text[:80]!r}"
            )
        if section == Section.PROPERTIES and rest not in KEY_PROPERTIES:
            raise InvalidInputError(
                f"latest: no key is in properties.{rest[:80]};"
                f" there are {', '.join(KEY_PROPERTIES)}"
            )
        return cls(Section(section), parts)

    def __str__(self) -> str:
        return ".".join((self.section, *self.path))


#: The properties of AMQP that are text.
KEY_PROPERTIES = tuple(
    name
    for name, kind in PROPERTIES.items()
    if kind == pa.string() and not name.endswith("_id_type")
)


@dataclass(frozen=True, slots=True)
class Latest:
    """One row a key and stream: its last message.

    Attributes:
        key: of a message.
        buckets: that the rows of a stream are divided into; a run writes those anew that it
            changes.
        keyless: what becomes of messages without a key.
    """

    key: LatestKey
    buckets: int = DEFAULT_BUCKETS
    keyless: Keyless = Keyless.DEAD_LETTER

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= MAX_BUCKETS:
            raise InvalidInputError(f"buckets is 1 to {MAX_BUCKETS}, not {self.buckets}")

    def divided(self, body: str) -> Buckets:
        """How the table's files are, by what becomes of bodies."""
        return Buckets(key_column(body), self.buckets, str(self.key))


def key_column(body: str) -> str:
    """Name of the column with the key, by what becomes of bodies."""
    return "key" if body == "raw" else "_key"


#: Words of a rule that this is about.
WORDS = ("latest", "keyless", "buckets")


def rule_latest(given: Mapping[str, Any]) -> Latest | None:
    """What these words of a rule mean; None where the table has a row of every message.

    Args:
        given: some of WORDS, and what stands there.

    Raises:
        InvalidInputError: they mean nothing.
    """
    if not given.get("latest"):
        if given:
            raise InvalidInputError(f"{next(iter(given))} belongs to latest")
        return None
    keyless = given.get("keyless", Keyless.DEAD_LETTER)
    if keyless not in list(Keyless):
        raise InvalidInputError(f"keyless is one of {', '.join(Keyless)}, not {keyless!r}")
    buckets = str(given.get("buckets", DEFAULT_BUCKETS))
    if not _NUMBER.fullmatch(buckets):
        raise InvalidInputError(f"buckets is a number of 1 to {MAX_BUCKETS}, not {buckets[:80]!r}")
    return Latest(LatestKey.parse(given["latest"]), int(buckets), Keyless(keyless))
