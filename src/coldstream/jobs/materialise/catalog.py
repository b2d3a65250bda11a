"""The Iceberg catalog of an AWS account, and the tables in it."""

from __future__ import annotations

import secrets

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog

from coldstream.jobs.arguments import Where
from coldstream.jobs.materialise.files import StoredFiles
from coldstream.jobs.materialise.iceberg import FILE_IO, IcebergTable
from coldstream.jobs.materialise.rules import Rule
from coldstream.jobs.materialise.run import Tables
from coldstream.jobs.materialise.schema import KEY_COLUMNS, columns_of
from coldstream.jobs.session import client


def glue_catalog(where: Where, warehouse: str) -> Catalog:
    """The Glue Data Catalog; new tables get their files below the URL `warehouse`."""
    return GlueCatalog("glue", client("glue", where), **file_properties(where), warehouse=warehouse)


def file_properties(where: Where) -> dict[str, str]:
    """What file access needs; credentials are found as by every AWS SDK."""
    properties = {"py-io-impl": FILE_IO}
    if where.region:
        properties["s3.region"] = where.region
    if where.endpoint:
        properties["s3.endpoint"] = where.endpoint
    return properties


def open_tables(catalog: Catalog, rule: Rule) -> Tables:
    """The tables of a rule; nothing is read yet."""

    def table(name: str, columns: tuple[str, str, str]) -> IcebergTable:
        return IcebergTable(
            catalog,
            name,
            partition=rule.partition,
            columns=columns,
            files=StoredFiles(),
            new_id=lambda: secrets.token_hex(8),
        )

    return Tables(table(rule.table, columns_of(rule.body)), table(rule.dead_letters, KEY_COLUMNS))
