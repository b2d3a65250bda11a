"""A new Iceberg table: how its files are divided, in which order its rows are, what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
)

from coldstream.jobs.materialise.buckets import Buckets
from coldstream.jobs.materialise.rules import TablePartition

RETRIES = "commit.retry.num-retries"
#: A property of every table of ours.
PARTITION = "coldstream.partition"
_TRANSFORMS: Mapping[TablePartition, Transform[Any, Any]] = {
    TablePartition.HOUR: HourTransform(),
    TablePartition.DAY: DayTransform(),
}


def divided(partition: TablePartition, buckets: Buckets | None) -> str:
    """How a table's files are divided, as its property says it."""
    return partition.value if buckets is None else buckets.told()


def create(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    location: str,
    partition: TablePartition,
    columns: tuple[str, str, str],
    buckets: Buckets | None = None,
) -> None:
    """Make a table, unless there is one already: another writer may be quicker.

    Args:
        catalog: where it is registered.
        name: `database.table`.
        schema: its columns.
        location: URL below which its files will lie.
        partition: of its files, by time.
        columns: names of the columns with stream, offset and time.
        buckets: of its files, in the place of `partition`; then rows are in no order.

    Raises:
        NoSuchNamespaceError: there is no such database.
    """
    stream, offset, time = columns
    properties = {
        RETRIES: "0",
        # A commit has a manifest of its own, and readers open all that there are.
        "commit.manifest-merge.enabled": "true",
        "write.parquet.compression-codec": "zstd",
        PARTITION: divided(partition, buckets),
    }
    with suppress(TableAlreadyExistsError, CommitFailedException):
        new = catalog.create_table_transaction(
            name, schema=schema, location=location, properties=properties
        )
        with new:
            with new.update_spec() as spec:
                spec.add_field(stream, IdentityTransform(), f"{stream}_identity")
                if buckets is not None:
                    by_key: Transform[Any, Any] = BucketTransform(buckets.count)
                    spec.add_field(buckets.column, by_key, f"{buckets.column}_bucket")
                elif partition in _TRANSFORMS:
                    spec.add_field(time, _TRANSFORMS[partition], f"{time}_{partition}")
            if buckets is None:
                with new.update_sort_order() as order:
                    order.asc(stream, IdentityTransform())
                    order.asc(offset, IdentityTransform())
