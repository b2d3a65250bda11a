"""The catalog item as DynamoDB holds it: attributes <-> `CatalogItem`.

Ids are hexadecimal text, all other numbers are numbers, times are ms since the Unix epoch.

Whoever can write to the table can write anything. What no item can say is refused where it is read,
before anybody counts with it, makes a key or a date of it, or asks a rule about it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.outline import MAX_TEXT, Outline
from coldstream.manifest.root import MAX_KEY
from coldstream.names import CATALOG_PARTITION_KEY, MAX_EPOCH, MAX_NAME, MAX_OFFSET, check_stream

_ZERO = {"N": "0"}
_NO_TEXT = {"S": ""}
_NO_OUTLINE = {"S": Outline().encode()}
_U64, _U128 = 2**64 - 1, 2**128 - 1
_MAX_VERSION = 10**12 - 1  # twelve digits in the key of a root
_MAX_TIME = 2**63 - 1  # a chunk's timestamp is signed
_MAX_DATE = 253_402_300_799_999  # the last ms that calendars have: the end of the year 9999
_NUMBER = re.compile(r"-?[0-9]{1,39}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{1,16}", re.ASCII)
#: What to try where an item of the table is of a later release, or damaged.
UNREADABLE = "use the release that wrote it, or restore the item from a backup of the table"


def parse_item(item: Mapping[str, Any], prefix: str) -> CatalogItem:
    """The value of a catalog item below `prefix`, as DynamoDB and its stream give it.

    Raises:
        CorruptDataError: this release cannot read it, or it says what no item can.
    """
    try:
        key = _text(item[CATALOG_PARTITION_KEY], len(prefix) + MAX_NAME)
        if not key.startswith(prefix):
            raise ValueError(f"its key does not begin with {prefix}")
        first_offset = _number(item["first_offset"], MAX_OFFSET)
        return CatalogItem(
            stream=check_stream(key.removeprefix(prefix)),
            table_id=_text(item["table_id"], 255),
            uid=_id(item["uid"]),
            root_key=_text(item["root_key"], MAX_KEY),
            epoch=_number(item["epoch"], MAX_EPOCH),
            version=_number(item["version"], _MAX_VERSION),
            first_offset=first_offset,
            next_offset=_number(item["next_offset"], MAX_OFFSET, least=first_offset),
            first_timestamp=_number(item["first_timestamp"], _MAX_TIME, least=-_MAX_TIME - 1),
            last_timestamp=_number(item["last_timestamp"], _MAX_TIME, least=-_MAX_TIME - 1),
            total_size=_number(item["total_size"], _U128),
            fragments=_number(item["fragments"], _U64),
            ledger=Ledger.of(
                (_number(claim["L"][0], MAX_EPOCH), _number(claim["L"][1], MAX_OFFSET))
                for claim in item["ledger"]["L"]
            ),
            name=QueueName(
                *(_text(item[field], MAX_NAME) for field in ("cluster", "vhost", "queue")),
                # Items of releases that knew no super streams do not have these.
                *(
                    _text(item.get(field, _NO_TEXT), MAX_NAME)
                    for field in ("super_stream", "routing_key")
                ),
            ),
            state=StreamState(item["state"]["S"]),
            # Items that were written before there were changes of state do not have these.
            revision=_number(item.get("revision", _ZERO), 2**63 - 1),
            undelete_until=_number(item.get("undelete_until", _ZERO), _MAX_DATE),
            state_token=_id(item.get("state_token", {"S": "0"})),
            # Nor do these have an outline.
            outline=_outline(item.get("outline", _NO_OUTLINE)),
        )
    except (KeyError, ValueError, TypeError, IndexError) as exc:
        raise CorruptDataError(
            f"a catalog item that this release cannot read: {repr(exc)[:300]}",
            stream=_stream_of(item, prefix),
            key=str(item.get(CATALOG_PARTITION_KEY))[:400],
            remedy=UNREADABLE,
        ) from exc


def _stream_of(item: Mapping[str, Any], prefix: str) -> str | None:
    """Whose item it is, if only its key can be read."""
    try:
        key = _text(item[CATALOG_PARTITION_KEY], len(prefix) + MAX_NAME)
        return check_stream(key.removeprefix(prefix)) if key.startswith(prefix) else None
    except (KeyError, ValueError, TypeError):
        return None


def _number(value: Mapping[str, Any], most: int, *, least: int = 0) -> int:
    text = value["N"]
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"the number {text[:40]!r} is not from {least} to {most}")
    return int(text)


def _id(value: Mapping[str, Any]) -> int:
    text = value["S"]
    if not _ID.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no id")
    return int(text, 16)


def _text(value: Mapping[str, Any], most: int) -> str:
    text = value["S"]
    if not isinstance(text, str) or len(text) > most:
        raise ValueError(f"{str(text)[:40]!r}.. is no text of at most {most} characters")
    text.encode()  # a surrogate, which JSON can say, is in no name
    return text


def summary_values(item: CatalogItem) -> dict[str, Any]:
    """Every attribute that a commit sets."""
    return {
        "uid": {"S": f"{item.uid:016x}"},
        "root_key": {"S": item.root_key},
        **{
            name: {"N": str(value)}
            for name, value in (
                ("epoch", item.epoch),
                ("version", item.version),
                ("first_offset", item.first_offset),
                ("next_offset", item.next_offset),
                ("first_timestamp", item.first_timestamp),
                ("last_timestamp", item.last_timestamp),
                ("total_size", item.total_size),
                ("fragments", item.fragments),
            )
        },
        "ledger": {
            "L": [
                {"L": [{"N": str(claim.epoch)}, {"N": str(claim.floor)}]}
                for claim in item.ledger.claims
            ]
        },
        "outline": {"S": item.outline.encode()},
    }


def name_values(name: QueueName) -> dict[str, Any]:
    """Every attribute that a new name sets."""
    return {
        "cluster": {"S": name.cluster},
        "vhost": {"S": name.vhost},
        "queue": {"S": name.queue},
        "super_stream": {"S": name.super_stream},
        "routing_key": {"S": name.routing_key},
    }


def state_values(
    state: StreamState, revision: int, undelete_until: int, state_token: int
) -> dict[str, Any]:
    """Every attribute that a change of state sets."""
    return {
        "state": {"S": state},
        "revision": {"N": str(revision)},
        "undelete_until": {"N": str(undelete_until)},
        "state_token": {"S": f"{state_token:016x}"},
    }


def _outline(value: Any) -> Outline:
    """An outline; that of another release, or a damaged one, tells nothing: the root has it all."""
    try:
        return Outline.parse(_text(value, MAX_TEXT))
    except (CorruptDataError, ValueError):
        return Outline()
