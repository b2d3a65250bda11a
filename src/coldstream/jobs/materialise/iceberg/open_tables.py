"""The Iceberg tables of rules: in the Glue Data Catalog, or in a REST catalog."""

from __future__ import annotations

import secrets

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io import load_file_io

from coldstream.adapters.place import Place, client
from coldstream.adapters.s3 import S3ObjectStore
from coldstream.adapters.s3_delete import S3Deleter
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg.buckets import Buckets
from coldstream.jobs.materialise.iceberg.catalog_ref import TablePlace
from coldstream.jobs.materialise.iceberg.state_object import OWN_PLACE, StatePlace
from coldstream.jobs.materialise.iceberg.table import FILE_IO, IcebergTable
from coldstream.jobs.materialise.rules import TableRule
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of
from coldstream.jobs.materialise.sweep import OpenBucket
from coldstream.jobs.materialise.table import Table
from coldstream.jobs.materialise.window_commit import Tables


def glue_catalog(place: Place, warehouse: str) -> Catalog:
    """The Glue Data Catalog; new tables get their files below the URL `warehouse`."""
    return GlueCatalog(
        "glue", client("glue", place), **file_properties(place), warehouse=warehouse.rstrip("/")
    )


def file_properties(place: Place) -> dict[str, str]:
    """What file access needs; credentials are found as by every AWS SDK."""
    properties = {"py-io-impl": FILE_IO}
    if place.region:
        properties["s3.region"] = place.region
    if place.endpoint:
        properties["s3.endpoint"] = place.endpoint
    return properties


def open_bucket(place: Place) -> OpenBucket:
    """Opens a bucket of tables, for reading and for deleting."""

    def opened(bucket: str) -> tuple[S3ObjectStore, S3Deleter]:
        store = S3ObjectStore(bucket=bucket, region=place.region, endpoint=place.endpoint)
        return store, S3Deleter(client=client("s3", place), bucket=bucket)

    return opened


def open_catalog(rule: TableRule, place: Place, warehouse: str) -> Catalog:
    """The catalog of a rule's tables.

    Raises:
        As `open_rest_catalog`; Glue's is asked for nothing yet.
    """
    if rule.catalog is None:
        return glue_catalog(place, warehouse)
    # Only who has such a catalog needs what speaks to it.
    from coldstream.jobs.materialise.iceberg.rest_catalog import open_rest_catalog

    return open_rest_catalog(rule.catalog, place, file_properties(place))


def open_tables(rule: TableRule, place: Place, warehouse: str) -> Tables:
    """The tables of a rule; nothing of them is read yet.

    Args:
        rule: of the tables.
        place: the account's services.
        warehouse: URL below which tables have their files, ends in "/".

    Raises:
        As `open_catalog`.
    """
    files = StoredFiles(region=place.region, endpoint=place.endpoint)
    catalog = open_catalog(rule, place, warehouse)
    placed = rule.catalog is not None and rule.catalog.place is TablePlace.CATALOG

    def new_id() -> str:
        return secrets.token_hex(8)

    def table(
        name: str,
        columns: tuple[str, str, str],
        buckets: Buckets | None = None,
        order: tuple[str, ...] = (),
    ) -> Table:
        below = f"{warehouse}{name.replace('.', '/')}"
        # Whoever gives a table its place may also sweep it, and knows no state objects.
        states = StatePlace(f"{below}-states", load_file_io(file_properties(place)))
        return IcebergTable(
            catalog,
            name,
            location=None if placed else below,
            partition=rule.partition,
            columns=columns,
            files=files,
            new_id=new_id,
            states=states if placed else OWN_PLACE,
            buckets=buckets,
            shared=rule.shared,
            order=order,
        )

    return Tables(
        table(rule.table, columns_of(rule.body), rule.buckets, rule.order),
        table(rule.dead_letters, KEY_COLUMNS),
    )
