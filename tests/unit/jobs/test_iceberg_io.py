"""Tables of a job whose role may list below its own prefix only, as those on Glue may.

To such a role S3 says 403 of whatever is not there: nothing may be looked for before it is written.
The embedded AWS, which knows no roles, says 404.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, load_file_io

from coldstream.jobs.materialise.iceberg.state_object import Pointer, read_state, write_state
from coldstream.jobs.materialise.iceberg.table import FILE_IO
from coldstream.jobs.materialise.state import TableState
from coldstream.jobs.snapshots import (
    SnapshotTable,
    SnapshotTables,
    TableSnapshot,
    column,
    part_file,
    register,
)
from tests.contract.bridge import Bridge

REGION = "us-east-1"
PLACE = "s3://warehouse/fleet/"
TABLE = SnapshotTable("t", "Rows", pa.schema([column("n", pa.int64(), "a number")]))


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        boto3.client("s3", region_name=REGION).create_bucket(Bucket="warehouse")
        with Bridge() as server:
            server.lists_below = "fleet/"
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            yield server
            server.shutdown()
            thread.join()


def properties(bridge: Bridge) -> dict[str, str]:
    return {
        "py-io-impl": FILE_IO,
        "s3.endpoint": bridge.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": "testing",
        "s3.secret-access-key": "testing",
    }


@pytest.fixture
def files(bridge: Bridge) -> FileIO:
    return load_file_io(properties(bridge))


def test_a_new_file_is_written_where_s3_does_not_say_that_it_is_missing(files: FileIO) -> None:
    url = f"{PLACE}t/metadata/1.json"

    with files.new_output(url).create() as out:
        out.write(b"{}")

    with files.new_input(url).open() as source:
        assert source.read() == b"{}"


def test_the_state_of_a_table_is_written_and_read_again_there(files: FileIO) -> None:
    url = f"{PLACE}t/coldstream/state-1.json"

    write_state("db.t", files, url, TableState())

    assert read_state(files, Pointer(url)) == TableState()


def test_the_rows_of_a_run_are_added_there_and_once(bridge: Bridge, tmp_path: Path) -> None:
    catalog = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", **properties(bridge))
    catalog.create_namespace("db")
    for taken_ms in (10**12, 2 * 10**12):
        snapshot = TableSnapshot(PLACE, taken_ms, REGION, bridge.endpoint)
        with part_file(snapshot, TABLE, 0) as part:
            part.add(pa.table({"n": [taken_ms]}))
        for _ in range(2):
            register(SnapshotTables(catalog, "db", pause=lambda _: None), snapshot, [TABLE])

    rows = catalog.load_table("db.t").scan().to_arrow()
    assert sorted(rows.column("n").to_pylist()) == [10**12, 2 * 10**12]
