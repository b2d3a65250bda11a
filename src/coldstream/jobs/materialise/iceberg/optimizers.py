"""Table optimisers of AWS Glue: what they are told of a table, and how they are switched on.

Compaction, expiry of snapshots and deletion of orphans are then Glue's, on its own machines. One
thing it must not take for an orphan: the state objects of `iceberg_state`, which no metadata of
Iceberg names. So its deletion looks at the data files only.

Sources: AWS Glue, "Table optimizer API" and "Optimizing Iceberg tables".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from coldstream.adapters.aws_errors import AWS_ERRORS, code_of
from coldstream.errors import InvalidInputError
from coldstream.jobs.materialise.iceberg.catalog_answers import answers

#: Days after which Glue forgets a snapshot unless told otherwise, and what none of our runs takes.
SNAPSHOT_DAYS, ORPHAN_DAYS = 5, 3
#: Of a unit of time of a stream. Glue's own, 100, is more than runs every 15 minutes make a day.
_MIN_INPUT_FILES = 5
#: Compactions in a row after the last run: as long as none of these goes, one of ours is known.
_MIN_SNAPSHOTS = 20
_ROLE = ":role/"

Configuration = Mapping[str, Any]


class Switched(StrEnum):
    """What became of an optimiser of a table."""

    CREATED = "created"
    CHANGED = "changed"
    THERE = "there"
    #: By a person; it stays so.
    OFF = "off"


def configurations(location: str, role: str, snapshot_days: int) -> dict[str, Configuration]:
    """What each type of optimiser is told.

    Args:
        location: of the table, without "/" at the end.
        role: ARN of the role that they take.
        snapshot_days: after which a snapshot may be forgotten.
    """
    told: dict[str, dict[str, dict[str, Any]]] = {
        "compaction": {
            "compactionConfiguration": {"strategy": "binpack", "minInputFiles": _MIN_INPUT_FILES}
        },
        "retention": {
            "retentionConfiguration": {
                "snapshotRetentionPeriodInDays": snapshot_days,
                "numberOfSnapshotsToRetain": _MIN_SNAPSHOTS,
                "cleanExpiredFiles": True,
            }
        },
        "orphan_file_deletion": {
            "orphanFileDeletionConfiguration": {
                "orphanFileRetentionPeriodInDays": ORPHAN_DAYS,
                "location": f"{location}/data",
            }
        },
    }
    return {
        kind: {
            "roleArn": role,
            "enabled": True,
            **{word: {"icebergConfiguration": each} for word, each in words.items()},
        }
        for kind, words in told.items()
    }


def next_step(
    wanted: Configuration, there: Configuration | None
) -> tuple[Switched, Configuration | None]:
    """What is to be done about one optimiser, and with which configuration; None for nothing.

    Args:
        wanted: its configuration.
        there: that it has; None if there is no such optimiser.
    """
    if there is None:
        return Switched.CREATED, wanted
    off = there.get("enabled") is False
    if off:
        # Still told where orphans may be: who switches it on again must not lose the table's state.
        wanted = {**wanted, "enabled": False}
    if _has(there, wanted):
        return (Switched.OFF if off else Switched.THERE), None
    return (Switched.OFF if off else Switched.CHANGED), wanted


def _has(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a configuration says all that is wanted; a service may add its own defaults."""
    for name, value in wanted.items():
        found = there.get(name)
        if isinstance(value, Mapping):
            if not isinstance(found, Mapping) or not _has(found, value):
                return False
        elif found != value:
            return False
    return True


def account_of(role: str) -> str:
    """The account of a role, which is also the id of its catalog.

    Raises:
        InvalidInputError: it is no ARN of a role.
    """
    parts = role.split(":")
    if len(parts) != 6 or _ROLE not in f":{parts[5]}" or not parts[4].isdecimal():
        raise InvalidInputError(f"{role[:200]!r} is no ARN of a role, as --optimizer-role needs it")
    return parts[4]


def switch_on(
    client: Any, name: str, wanted: Mapping[str, Configuration], account: str
) -> dict[str, str]:
    """Make a table's optimisers what they should be; what became of each, by its type.

    Args:
        client: of boto3, for the service glue.
        name: `database.table`.
        wanted: by type of optimiser, its configuration.
        account: of the catalog.

    Raises:
        PermissionDeniedError, UnavailableError, InvalidInputError: from Glue. What was done stays.
    """
    database, _, table = name.partition(".")
    done: dict[str, str] = {}
    for kind, configuration in wanted.items():
        which = {"CatalogId": account, "DatabaseName": database, "TableName": table, "Type": kind}
        with answers(f"{name} ({kind} by AWS Glue)"):
            found = _found(client, which)
            switched, told = next_step(configuration, found)
            if told is not None:
                create = found is None
                call = client.create_table_optimizer if create else client.update_table_optimizer
                call(**which, TableOptimizerConfiguration=dict(told))
        done[kind] = switched
    return done


def _found(client: Any, which: Mapping[str, str]) -> Configuration | None:
    try:
        found: Configuration = client.get_table_optimizer(**which)["TableOptimizer"]
    except AWS_ERRORS as error:
        if code_of(error) == "EntityNotFoundException":
            return None
        raise
    return found.get("configuration") or {}
