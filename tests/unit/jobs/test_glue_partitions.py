"""A Parquet table in the Glue Data Catalog: what it shows, and what it says that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from coldstream.errors import UnavailableError
from coldstream.jobs.materialise.glue_partitions import VERSION_PARAMETER, GluePartitions
from coldstream.jobs.materialise.table import StoredFile
from coldstream_devkit.suites.table import SCHEMA

_LOCATION = "s3://tables/db/t"


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)  # as a job in this process sets it
    with mock_aws():
        yield boto3.client("glue", region_name="eu-central-1")


@pytest.fixture
def shown(glue: Any) -> GluePartitions:
    return GluePartitions(glue, "db.t", _LOCATION)


def _file(commit: str, unit: int = 0) -> StoredFile:
    path = f"{_LOCATION}/data/s/day={unit}/{commit}/1.parquet"
    return StoredFile(path, 1, 1, "s", unit, 0, None)


def _partitions(glue: Any) -> set[str]:
    found = glue.get_partitions(DatabaseName="db", TableName="t")["Partitions"]
    return {each["Values"][2] for each in found}


def _refuse(client: Any, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "InternalServiceException"}}, operation)

    monkeypatch.setattr(client, operation, refused)


def test_a_table_that_nobody_published_shows_no_version(shown: GluePartitions) -> None:
    assert shown.version() == 0


def test_what_is_published_is_there_and_its_version_is_remembered(
    glue: Any, shown: GluePartitions
) -> None:
    shown.publish(SCHEMA, [_file("a"), _file("b", 1)], 7)
    assert _partitions(glue) == {"a", "b"}
    assert shown.version() == 7


def test_a_version_is_not_remembered_before_all_its_partitions_are_there(
    glue: Any, shown: GluePartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.publish(SCHEMA, [_file("a")], 1)
    with monkeypatch.context() as broken:
        _refuse(glue, "batch_create_partition", broken)
        with pytest.raises(UnavailableError, match="does not show it yet"):
            shown.publish(SCHEMA, [_file("a"), _file("b")], 2)
    assert shown.version() == 1
    shown.publish(SCHEMA, [_file("a"), _file("b")], 2)
    assert (_partitions(glue), shown.version()) == ({"a", "b"}, 2)


def test_partitions_whose_files_are_gone_go(glue: Any, shown: GluePartitions) -> None:
    shown.publish(SCHEMA, [_file(str(n)) for n in range(130)], 1)
    shown.publish(SCHEMA, [_file("merged")], 2)
    assert _partitions(glue) == {"merged"}


def test_new_columns_and_parameters_of_others_stay(glue: Any, shown: GluePartitions) -> None:
    shown.publish(SCHEMA, [_file("a")], 1)
    table = glue.get_table(DatabaseName="db", Name="t")["Table"]
    known = {k: table[k] for k in ("Name", "TableType", "PartitionKeys", "StorageDescriptor")}
    theirs = {**table["Parameters"], "projection": "theirs"}
    glue.update_table(DatabaseName="db", TableInput={**known, "Parameters": theirs})
    shown.publish(pa.schema([*SCHEMA, pa.field("price", pa.float64())]), [_file("a")], 2)
    after = glue.get_table(DatabaseName="db", Name="t")["Table"]
    assert after["Parameters"]["projection"] == "theirs"
    assert after["Parameters"][VERSION_PARAMETER] == "2"
    assert after["StorageDescriptor"]["Columns"][-1] == {"Name": "price", "Type": "double"}


def test_glue_that_does_not_answer_is_no_version(
    glue: Any, shown: GluePartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse(glue, "get_table", monkeypatch)
    with pytest.raises(UnavailableError, match="does not say"):
        shown.version()
