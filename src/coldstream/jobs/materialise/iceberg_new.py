"""A new Iceberg table: how its files are divided, in which order its rows are, what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
)

from coldstream.jobs.materialise.buckets import Buckets
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.write import DEFAULT_FILE_BYTES

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
    location: str | None,
    partition: TablePartition,
    columns: tuple[str, str, str],
    buckets: Buckets | None = None,
) -> None:
    """Make a table, unless there is one already: another writer may be quicker.

    Args:
        catalog: where it is registered.
        name: `database.table`.
        schema: its columns.
        location: URL below which its files will lie; None where the catalog gives one.
        partition: of its files, by time.
        columns: names of the columns with stream, offset and time.
        buckets: of its files, in the place of `partition`; then rows are in no order.

    Raises:
        NoSuchNamespaceError: there is no such database.
    """
    stream, offset, time = columns
    # pyiceberg gives names of columns to a transaction only, and S3 Tables and Glue's REST catalog
    # take no table that is made in two steps.
    known = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))

    def id_of(column: str) -> int:
        return known.find_field(column).field_id

    parts: list[tuple[str, Transform[Any, Any], str]] = [
        (stream, IdentityTransform(), f"{stream}_identity")
    ]
    if buckets is not None:
        parts.append((buckets.column, BucketTransform(buckets.count), f"{buckets.column}_bucket"))
    elif partition in _TRANSFORMS:
        parts.append((time, _TRANSFORMS[partition], f"{time}_{partition}"))
    spec = PartitionSpec(
        *(
            PartitionField(id_of(column), PARTITION_FIELD_ID_START + number, transform, field)
            for number, (column, transform, field) in enumerate(parts)
        )
    )
    order = SortOrder(*(SortField(id_of(each), IdentityTransform()) for each in (stream, offset)))
    if buckets is not None:
        order = UNSORTED_SORT_ORDER
    properties = {
        RETRIES: "0",
        # A commit has a manifest of its own, and readers open all that there are.
        "commit.manifest-merge.enabled": "true",
        "write.parquet.compression-codec": "zstd",
        # What others compact becomes as large as what we write.
        "write.target-file-size-bytes": str(DEFAULT_FILE_BYTES),
        PARTITION: divided(partition, buckets),
    }
    with suppress(TableAlreadyExistsError, CommitFailedException):
        catalog.create_table(name, known, location, spec, order, properties)
