"""The catalog item as DynamoDB holds it: attributes <-> `CatalogItem`.

Ids are hexadecimal text, all other numbers are numbers, times are ms since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coldstream.errors import CorruptDataError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.ledger import Ledger
from coldstream.names import CATALOG_PARTITION_KEY, check_stream

_ZERO = {"N": "0"}


def parse_item(item: Mapping[str, Any], prefix: str) -> CatalogItem:
    """The value of a catalog item below `prefix`, as DynamoDB and its stream give it.

    Raises:
        CorruptDataError: this release cannot read it.
    """
    try:
        key = str(item[CATALOG_PARTITION_KEY]["S"])
        return CatalogItem(
            stream=check_stream(key.removeprefix(prefix)),
            table_id=str(item["table_id"]["S"]),
            uid=int(item["uid"]["S"], 16),
            root_key=str(item["root_key"]["S"]),
            epoch=int(item["epoch"]["N"]),
            version=int(item["version"]["N"]),
            first_offset=int(item["first_offset"]["N"]),
            next_offset=int(item["next_offset"]["N"]),
            first_timestamp=int(item["first_timestamp"]["N"]),
            last_timestamp=int(item["last_timestamp"]["N"]),
            total_size=int(item["total_size"]["N"]),
            fragments=int(item["fragments"]["N"]),
            ledger=Ledger.of(
                (int(claim["L"][0]["N"]), int(claim["L"][1]["N"])) for claim in item["ledger"]["L"]
            ),
            name=QueueName(
                str(item["cluster"]["S"]), str(item["vhost"]["S"]), str(item["queue"]["S"])
            ),
            state=StreamState(item["state"]["S"]),
            # Items that were written before there were changes of state do not have these.
            revision=int(item.get("revision", _ZERO)["N"]),
            undelete_until=int(item.get("undelete_until", _ZERO)["N"]),
            state_token=int(item.get("state_token", {"S": "0"})["S"], 16),
        )
    except (KeyError, ValueError, TypeError, IndexError) as exc:
        raise CorruptDataError(
            f"a catalog item that this release cannot read: {exc!r}",
            key=str(item.get(CATALOG_PARTITION_KEY)),
        ) from exc


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
    }


def name_values(name: QueueName) -> dict[str, Any]:
    """Every attribute that a new name sets."""
    return {
        "cluster": {"S": name.cluster},
        "vhost": {"S": name.vhost},
        "queue": {"S": name.queue},
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
