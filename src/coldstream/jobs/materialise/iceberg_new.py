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
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.write import DEFAULT_FILE_BYTES

RETRIES = "commit.retry.num-retries"
#: A property of every table of ours.
PARTITION = "coldstream.partition"
_TRANSFORMS: Mapping[TablePartition, Transform[Any, Any]] = {
    TablePartition.HOUR: HourTransform(),
    TablePartition.DAY: DayTransform(),
}


def create(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    location: str | None,
    partition: TablePartition,
    columns: tuple[str, str, str],
) -> None:
    """Make a table, unless there is one already: another writer may be quicker.

    Args:
        catalog: where it is registered.
        name: `database.table`.
        schema: its columns.
        location: URL below which its files will lie; None where the catalog gives one.
        partition: of its files, by time.
        columns: names of the columns with stream, offset and time.

    Raises:
        NoSuchNamespaceError: there is no such database.
    """
    stream, offset, time = columns
    # pyiceberg gives names of columns to a transaction only, and S3 Tables and Glue's REST catalog
    # take no table that is made in two steps.
    known = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))

    def id_of(column: str) -> int:
        return known.find_field(column).field_id

    divided: list[tuple[str, Transform[Any, Any], str]] = [
        (stream, IdentityTransform(), f"{stream}_identity")
    ]
    if partition in _TRANSFORMS:
        divided.append((time, _TRANSFORMS[partition], f"{time}_{partition}"))
    spec = PartitionSpec(
        *(
            PartitionField(id_of(column), PARTITION_FIELD_ID_START + number, transform, field)
            for number, (column, transform, field) in enumerate(divided)
        )
    )
    order = SortOrder(*(SortField(id_of(each), IdentityTransform()) for each in (stream, offset)))
    properties = {
        RETRIES: "0",
        # A commit has a manifest of its own, and readers open all that there are.
        "commit.manifest-merge.enabled": "true",
        "write.parquet.compression-codec": "zstd",
        # What others compact becomes as large as what we write.
        "write.target-file-size-bytes": str(DEFAULT_FILE_BYTES),
        PARTITION: partition.value,
    }
    with suppress(TableAlreadyExistsError, CommitFailedException):
        catalog.create_table(name, known, location, spec, order, properties)
