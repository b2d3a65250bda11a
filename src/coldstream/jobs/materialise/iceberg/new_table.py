"""A new Iceberg table: how its files are divided, in which order its rows are, what it is told."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from coldstream.jobs.materialise.iceberg.shape import PARTITION, Shape, whole_names
from coldstream.jobs.materialise.write import DEFAULT_FILE_BYTES

RETRIES = "commit.retry.num-retries"


def create(
    catalog: Catalog, name: str, schema: pa.Schema, location: str | None, shape: Shape
) -> None:
    """Make a table, unless there is one already: another writer may be quicker.

    Args:
        catalog: where it is registered.
        name: `database.table`.
        schema: its columns.
        location: URL below which its files will lie; None where the catalog gives one.
        shape: of its files.

    Raises:
        NoSuchNamespaceError: there is no such database.
    """
    # pyiceberg gives names of columns to a transaction only, and S3 Tables and Glue's REST catalog
    # take no table that is made in two steps.
    known = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))

    def id_of(column: str) -> int:
        return known.find_field(column).field_id

    spec = PartitionSpec(
        *(
            PartitionField(id_of(column), PARTITION_FIELD_ID_START + number, transform, field)
            for number, (column, transform, field) in enumerate(shape.parts())
        )
    )
    order = SortOrder(*shape.sort_fields(known)) if shape.buckets is None else UNSORTED_SORT_ORDER
    properties = {
        RETRIES: "0",
        # A commit has a manifest of its own, and readers open all that there are.
        "commit.manifest-merge.enabled": "true",
        "write.parquet.compression-codec": "zstd",
        # What others compact becomes as large as what we write.
        "write.target-file-size-bytes": str(DEFAULT_FILE_BYTES),
        PARTITION: shape.divided(),
        **whole_names(shape),
    }
    with suppress(TableAlreadyExistsError, CommitFailedException):
        catalog.create_table(name, known, location, spec, order, properties)
