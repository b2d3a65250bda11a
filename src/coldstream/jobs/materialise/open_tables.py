"""The Iceberg tables of an AWS account, in its Glue Data Catalog."""

from __future__ import annotations

import secrets

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog

from coldstream.adapters.s3 import S3ObjectStore
from coldstream.adapters.s3_delete import S3Deleter
from coldstream.jobs.arguments import Where
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.rules import Rule
from coldstream.jobs.materialise.run import Tables
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of
from coldstream.jobs.materialise.sweep import OpenBucket
from coldstream.jobs.materialise.table import Table
from coldstream.jobs.session import client


def glue_catalog(where: Where, warehouse: str) -> Catalog:
    """The Glue Data Catalog; new tables get their files below the URL `warehouse`."""
    return GlueCatalog(
        "glue", client("glue", where), **file_properties(where), warehouse=warehouse.rstrip("/")
    )


def file_properties(where: Where) -> dict[str, str]:
    """What file access needs; credentials are found as by every AWS SDK."""
    properties = {"py-io-impl": FILE_IO}
    if where.region:
        properties["s3.region"] = where.region
    if where.endpoint:
        properties["s3.endpoint"] = where.endpoint
    return properties


def open_bucket(there: Where) -> OpenBucket:
    """Opens a bucket of tables, for reading and for deleting."""

    def opened(bucket: str) -> tuple[S3ObjectStore, S3Deleter]:
        store = S3ObjectStore(bucket=bucket, region=there.region, endpoint=there.endpoint)
        return store, S3Deleter(client=client("s3", there), bucket=bucket)

    return opened


def open_tables(rule: Rule, there: Where, warehouse: str) -> Tables:
    """The tables of a rule; nothing is read yet.

    Args:
        rule: of the tables.
        there: the account's services.
        warehouse: URL below which tables have their files, ends in "/".
    """
    files = StoredFiles(region=there.region, endpoint=there.endpoint)

    def new_id() -> str:
        return secrets.token_hex(8)

    def table(name: str, columns: tuple[str, str, str]) -> Table:
        return IcebergTable(
            glue_catalog(there, warehouse),
            name,
            location=f"{warehouse}{name.replace('.', '/')}",
            partition=rule.partition,
            columns=columns,
            files=files,
            new_id=new_id,
        )

    return Tables(table(rule.table, columns_of(rule.body)), table(rule.dead_letters, KEY_COLUMNS))
