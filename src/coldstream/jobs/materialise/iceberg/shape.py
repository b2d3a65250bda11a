"""The shape of an Iceberg table's files: how they are divided, and in which order their rows are.

A table is made in the shape that its rule says (`iceberg_new`). Two things of it may change later,
for the files that come then: streams may begin to share files, and the order may be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
)

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.rules import TablePartition
from coldstream.jobs.materialise.table import Loaded
from coldstream.jobs.materialise.write import FileLayout, sorted_by

#: A property of every table of ours.
PARTITION = "coldstream.partition"
_ATTEMPTS = 10
_TRANSFORMS: Mapping[TablePartition, Transform[Any, Any]] = {
    TablePartition.HOUR: HourTransform(),
    TablePartition.DAY: DayTransform(),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the files of a table are.

    Attributes:
        partition: by time.
        columns: names of the columns with stream, offset and time.
        buckets: of its files, in the place of `partition`; then rows are in no order.
        shared: whether streams share files.
        order: names of columns by which the rows of a file are sorted before stream and offset.
    """

    partition: TablePartition
    columns: tuple[str, str, str]
    buckets: Buckets | None = None
    shared: bool = False
    order: tuple[str, ...] = ()

    def parts(self) -> list[tuple[str, Transform[Any, Any], str]]:
        """What divides files: columns, what is made of them, and names."""
        stream, _, time = self.columns
        parts: list[tuple[str, Transform[Any, Any], str]] = []
        if not self.shared:
            parts.append((stream, IdentityTransform(), f"{stream}_identity"))
        if self.buckets is not None:
            key = self.buckets.column
            parts.append((key, BucketTransform(self.buckets.count), f"{key}_bucket"))
        elif self.partition in _TRANSFORMS:
            parts.append((time, _TRANSFORMS[self.partition], f"{time}_{self.partition}"))
        return parts

    def divides(self, metadata: TableMetadata) -> bool:
        """Whether a table gets new files divided by just this.

        True of a table that lacks one of the columns: the check of columns refuses it, by name.
        """
        schema = metadata.schema()
        if not all(name in schema.column_names for name, _, _ in self.parts()):
            return True
        mine = [(schema.find_field(name).field_id, by) for name, by, _ in self.parts()]
        return mine == [(each.source_id, each.transform) for each in metadata.spec().fields]

    def divided(self) -> str:
        """How files are divided, as a property of the table says it."""
        if self.shared:
            return f"{self.partition.value}, shared by streams"
        return self.partition.value if self.buckets is None else self.buckets.told()

    def before_sharing(self) -> str | None:
        """How files may have been divided before streams shared them; None if they do not."""
        return self.partition.value if self.shared else None

    def layout(self, loaded: Loaded) -> FileLayout:
        """How files are written of which the driver writes some rows anew."""
        return FileLayout(
            loaded.location,
            loaded.schema,
            self.partition,
            self.columns,
            buckets=self.buckets,
            shared=self.shared,
            order=self.order,
        )

    def sort_fields(self, schema: Schema) -> list[SortField]:
        """How rows are sorted, rising; streams and offsets are never null."""
        return [
            SortField(
                schema.find_field(name).field_id,
                IdentityTransform(),
                null_order=NullOrder.NULLS_LAST if name in self.order else NullOrder.NULLS_FIRST,
            )
            for name in sorted_by(self.order, self.columns[:2])
        ]

    def has_columns(self, schema: Schema) -> bool:
        """Whether a table has the columns of the order; an older one gets them with its rule."""
        return all(name in schema.column_names for name in self.order)

    def order_id(self, metadata: TableMetadata) -> int | None:
        """Id of this order in a table that has it, or had it; None if it never did."""
        if not self.has_columns(metadata.schema()):
            return None
        fields = self.sort_fields(metadata.schema())
        for each in metadata.sort_orders:
            if each.fields == fields:
                return each.order_id
        return None


def check_shape(name: str, metadata: TableMetadata, shape: Shape) -> None:
    """A table is of a shape, or may get it.

    Raises:
        InvalidInputError: it is none of ours, or its files are divided otherwise.
    """
    properties = metadata.properties
    if PARTITION not in properties:
        raise InvalidInputError(
            f"the table {name} exists and was not made by coldstream: choose another name"
        )
    wanted = shape.divided()
    if properties[PARTITION] not in (wanted, shape.before_sharing()):
        present = metadata.schema().column_names
        lacking = [column for column in shape.columns if column not in present]
        if lacking:
            raise InvalidInputError(
                f"the table {name} has no column {lacking[0]}: it was filled with another body than"
                " the rule's. Fill a table of another name, or go back to that body"
            )
        raise InvalidInputError(
            f"the table {name} is partitioned by {properties[PARTITION]}, the rule says {wanted}"
        )
    own = replace(shape, shared=properties[PARTITION] == wanted and shape.shared)
    if not own.divides(metadata):
        raise InvalidInputError(
            f"others have changed what divides the files of {name} (ALTER TABLE … PARTITION FIELD):"
            " files of ours would say what they are not; change it back"
        )


def shaped(catalog: Catalog, name: str, table: Table, shape: Shape) -> Table:
    """A table with the shape that its files get from now on; those that there are stay.

    Raises:
        UnavailableError: other changes were quicker, again and again.
    """
    for _ in range(_ATTEMPTS):
        share = table.metadata.properties[PARTITION] == shape.before_sharing()
        # Without an order in the rule the table's stays, which a person may have given it.
        fields = table.sort_order().fields
        if shape.order and shape.has_columns(table.schema()):
            fields = shape.sort_fields(table.schema())
        if not share and table.sort_order().fields == fields:
            return table
        with suppress(CommitFailedException), table.transaction() as change:
            if share:
                _share(change, shape)
            if table.sort_order().fields != fields:
                _sort(change, fields)
        table = catalog.load_table(name)
    raise UnavailableError(f"{name} changed all the time")


def _share(change: Transaction, shape: Shape) -> None:
    known = change.table_metadata.schema().find_field(shape.columns[0]).field_id
    with change.update_spec() as spec:
        for field in change.table_metadata.spec().fields:
            if field.source_id == known:
                spec.remove_field(field.name)
    change.set_properties({PARTITION: shape.divided(), **whole_names(shape)})


def _sort(change: Transaction, fields: Sequence[SortField]) -> None:
    with change.update_sort_order() as update:
        for each in fields:
            column = change.table_metadata.schema().find_column_name(each.source_id)
            assert column is not None
            update.asc(column, each.transform, each.null_order)


def whole_names(shape: Shape) -> dict[str, str]:
    """The property by which files say whose rows they have, where streams share them.

    Names differ at their ends only, and of a column 16 characters are told unless it is asked for.
    """
    column = f"write.metadata.metrics.column.{shape.columns[0]}"
    return {column: "full"} if shape.shared else {}
