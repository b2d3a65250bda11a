"""Materialise as a program on real Spark, against the embedded AWS: Iceberg in its Glue catalog."""

from __future__ import annotations

import io
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.place import Place
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.errors import ColdstreamError
from coldstream.jobs.materialise.iceberg.open_tables import glue_catalog, open_bucket, open_tables
from coldstream.jobs.materialise.iceberg.table import IcebergTable
from coldstream.jobs.materialise.rules import TablePartition, TableRule
from coldstream.jobs.materialise.sweep import sweep
from coldstream.jobs.materialise.table import AppendOutcome
from coldstream.jobs.materialise.times import MAX_MS
from coldstream.jobs.materialise.transform import first_schema
from coldstream.manifest.catalog import QueueName
from coldstream.osiris.amqp import encode_data
from coldstream.plans.claim import NO_HISTORY
from coldstream.reader.spec import First
from coldstream.reader.stream import StreamReader
from coldstream.remote.context import Context
from coldstream.usecases.claim import anchor
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.claims import claim
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.fragments import START_MS
from glue_jobs.materialise import main
from tests.glue.in_process import MARKS, pointed_at
from tests.glue.streams import fragment, no_pause, upload
from tests.support.rest_catalog import HANG_UP, rest_server
from tests.support.sparks import of_spark
from tests.unit.bodies.test_avro import ORDER, VALUE, encoded, framed
from tests.unit.bodies.test_registry import Served, served  # noqa: F401 - a fixture

pytestmark = MARKS

ROOT = Path(__file__).parents[2]
_HOUR_MS = 3_600_000


@dataclass
class Site:
    """The deployed app and the job."""

    emulator: Emulator
    outputs: dict[str, str]
    context: Context
    database: str = field(default_factory=lambda: f"db_{secrets.token_hex(4)}")

    @property
    def warehouse(self) -> str:
        return self.outputs[deployment.OUTPUT_WAREHOUSE] + "materialise/"

    def command(self, *arguments: str) -> list[str]:
        given = ["--bucket", self.outputs[deployment.OUTPUT_BUCKET], "--table"]
        given += [self.outputs[deployment.OUTPUT_TABLE], "--warehouse", self.warehouse]
        given += ["--database", self.database, "--endpoint", self.emulator.endpoint]
        return [sys.executable, "-m", "glue_jobs.materialise", *given, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return {**of_spark(), **self.emulator.environment()}

    def run(self, *arguments: str, ok: bool = True) -> dict[str, Any]:
        """Run the job to its end, in this process, on the session of its tests; its last line."""
        printed, error = io.StringIO(), None
        with redirect_stdout(printed):
            try:
                main(self.command(*arguments)[3:])
            except ColdstreamError as exc:
                error = exc
        said: dict[str, Any] = json.loads(printed.getvalue().splitlines()[-1])
        assert said["ok"] is ok, error
        assert (error is None) is ok
        return said

    def program(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the job to its end as a program."""
        return subprocess.run(
            self.command(*arguments), env=self.environment, cwd=ROOT, capture_output=True,
            timeout=600, check=False, text=True,
        )  # fmt: skip

    def rows(self, table: str) -> pa.Table:
        """A table as another client of the catalog reads it."""
        place = Place("", "", "", "us-east-1", self.emulator.endpoint)
        catalog = glue_catalog(place, self.warehouse)
        return catalog.load_table(f"{self.database}.{table}").scan().to_arrow()

    def messages(self, stream: str) -> list[tuple[int, bytes]]:
        """(offset, body) of a stream, by the reader."""
        reader = StreamReader(self.context.store, self.context.catalog, self.context.prefix, stream)
        return [(m.offset, bytes(m.body)) for m in reader.messages(First())]

    def stream(self, queue: str, fragments: int, body: Any, message: Any = None) -> str:
        """A stream of fragments of 25 messages, an hour each, in two claims' worth of manifest."""
        stream = f"__{queue}_{secrets.randbits(40)}"
        anchor(self.context, stream, 0, QueueName(cluster="c", vhost="/", queue=queue))
        claim(self.context, stream, 1, log=NO_HISTORY, pause=no_pause)
        self.extend(stream, 0, fragments, body, message=message)
        return stream

    def extend(
        self,
        stream: str,
        first: int,
        fragments: int,
        body: Any,
        begin_ms: int = START_MS,
        message: Any = None,
    ) -> None:
        for n in range(first, first + fragments):
            made = fragment(
                stream, n * 25, n * 25 + 25, body=body, records_per_chunk=4,
                timestamps=[begin_ms + n * _HOUR_MS], message=message,
            )  # fmt: skip
            upload(self.context, made)
        commit_runs(self.context, stream, pause=no_pause)


@pytest.fixture(scope="module")
def deployed(emulator: Emulator) -> Iterator[tuple[Emulator, dict[str, str], Context]]:
    outputs = emulator.deploy_app().outputs
    bucket, table, prefix = (
        outputs[name]
        for name in (deployment.OUTPUT_BUCKET, deployment.OUTPUT_TABLE, deployment.OUTPUT_PREFIX)
    )
    context = Context(
        BotoObjectStore(client=emulator.client("s3"), bucket=bucket),
        DynamoCatalog(client=emulator.client("dynamodb"), table=table, prefix=prefix),
        prefix,
        lambda: secrets.randbits(64),
    )
    with pointed_at(emulator):
        yield emulator, outputs, context


@pytest.fixture
def site(deployed: tuple[Emulator, dict[str, str], Context]) -> Site:
    return Site(*deployed)


def _plain(offset: int) -> bytes:
    return b"body of %d" % offset


def _json(offset: int) -> bytes:
    if offset % 40 == 13:
        return b"no json"
    found: dict[str, Any] = {"id": offset, "who": f"customer-{offset % 7}"}
    if offset >= 150:
        found["total"] = offset / 4
        found["lines"] = [{"sku": "a", "count": offset % 3}]
    return json.dumps(found).encode()


def test_a_rest_catalog_has_each_message_once_also_where_its_answer_is_lost(
    site: Site, tmp_path: Path
) -> None:
    queue = f"rest-{secrets.token_hex(3)}"
    stream = site.stream(queue, 4, _plain)
    site.emulator.client("secretsmanager").create_secret(
        Name=queue, SecretString=json.dumps({"token": "t"})
    )
    files = {"s3.endpoint": site.emulator.endpoint, "s3.region": "us-east-1"}
    with rest_server(tmp_path, f"{site.warehouse}rest", **files) as server:
        server.token = "t"
        given = json.dumps({"uri": server.uri, "secret": queue, "place": "catalog"})
        job = ("--streams", queue, "--into", "plain", "--catalog", given)
        server.instead = [HANG_UP]
        said = site.run(*job)["tables"][f"{site.database}.plain"]
        site.extend(stream, 4, 1, _plain)
        again = site.run(*job)["tables"][f"{site.database}.plain"]
        rows = server.open_catalog().load_table(f"{site.database}.plain").scan().to_arrow()

    assert (said["rows"], again["rows"]) == (100, 25)
    assert again["planned"] == {stream: [[100, 125]]}
    assert sorted(rows["offset"].to_pylist()) == list(range(125))


def test_streams_become_tables_that_grow_with_them(site: Site) -> None:
    queue = f"plain-{secrets.token_hex(3)}"
    plain = site.stream(queue, 8, _plain)
    fields = site.stream(f"json-{queue}", 8, _json)
    rules = {
        "version": 1,
        "tables": [
            {"streams": queue, "table": f"{site.database}.plain"},
            {"streams": f"json-{queue}", "table": f"{site.database}.orders", "body": "json",
             "partition": "hour"},
        ],
    }  # fmt: skip
    said = site.run("--rules", json.dumps(rules), "--partition-bytes", "2000")
    tables = {name.partition(".")[2]: each for name, each in said["tables"].items()}
    assert (tables["plain"]["rows"], tables["plain"]["dead_letters"]) == (200, 0)
    assert (tables["orders"]["rows"], tables["orders"]["dead_letters"]) == (195, 5)
    assert tables["orders"]["columns_added"] == ["id", "who", "total", "lines"]

    site.extend(plain, 8, 2, _plain)
    again = site.run("--rules", json.dumps(rules), "--partition-bytes", "2000")["tables"]
    assert again[f"{site.database}.plain"]["planned"] == {plain: [[200, 250]]}
    assert again[f"{site.database}.orders"]["commits"] == 0

    rows = site.rows("plain").sort_by("offset").to_pylist()
    expected = site.messages(plain)
    assert [row["offset"] for row in rows] == [offset for offset, _ in expected]
    assert [b"\x00Su\xa0" + bytes([len(r["body"])]) + r["body"] for r in rows] == [
        wire for _, wire in expected
    ]
    assert {row["stream"] for row in rows} == {plain}

    orders = site.rows("orders").sort_by("_offset").to_pylist()
    good = [n for n in range(200) if n % 40 != 13]
    assert [row["_offset"] for row in orders] == good
    for row in orders:
        found = json.loads(_json(row["_offset"]))
        assert {name: row[name] for name in found} == found
        assert row["_rescued"] is None
    dead = site.rows("orders_dead_letters").sort_by("offset").to_pylist()
    assert [row["offset"] for row in dead] == [13, 53, 93, 133, 173]
    assert all(row["raw"].endswith(b"no json") for row in dead)
    assert all("no JSON" in row["error"] for row in dead)
    assert {row["stream"] for row in dead} == {fields}


@pytest.mark.slow
def test_a_super_stream_of_avro_is_one_table_with_the_columns_of_its_subject(
    site: Site,
    served: str,  # noqa: F811 - a fixture
) -> None:
    name = f"shop-{secrets.token_hex(3)}"
    schema = {"schema": json.dumps(ORDER)}
    Served.answers |= {
        f"/subjects/{name}/versions/latest": (200, schema),
        "/schemas/ids/7": (200, schema),
    }

    def body(offset: int) -> bytes:
        if offset == 3:
            return b"no avro"
        return framed(7, encoded({**VALUE, "id": offset, "rate": 0.5}, ORDER))

    for key in ("eu", "us"):
        stream = f"__{name}_{key}_{secrets.randbits(40)}"
        queue = QueueName("c", "/", f"{name}-{key}", name, key)
        anchor(site.context, stream, 0, queue)
        claim(site.context, stream, 1, log=NO_HISTORY, pause=no_pause)
        site.extend(stream, 0, 1, body)

    said = site.run(
        *("--super-streams", name, "--into", "orders", "--body", "avro"),
        *("--registry", served, "--subject", name, "--columns", "header"),
    )["tables"][f"{site.database}.orders"]

    assert (said["rows"], said["dead_letters"]) == (48, 2)
    rows = site.rows("orders").to_pylist()
    assert {(row["_super_stream"], row["_routing_key"]) for row in rows} == {
        (name, "eu"), (name, "us"),
    }  # fmt: skip
    assert {row["id"] for row in rows} == set(range(25)) - {3}
    assert {(row["price"], row["rate"], row["_header"]) for row in rows} == {
        (Decimal("19.99"), 0.5, None)
    }
    dead = site.rows("orders_dead_letters").to_pylist()
    assert all("id of a schema" in row["error"] for row in dead)


def _order(offset: int) -> bytes:
    found: dict[str, Any] = {
        "id": offset,
        "price": 20 if offset % 5 == 0 else 19.99,
        "placed_at": "2026-11-24T08:16:44.5+01:00",
        "coupon": "A7" if offset % 2 else 7,
    }
    return json.dumps(found if offset != 42 else found | {"price": "a lot"}).encode()


def test_a_table_is_planned_then_declared_and_no_clock_stops_it(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = f"declared-{secrets.token_hex(3)}"
    stream = site.stream(queue, 4, _order)
    site.extend(stream, 4, 1, _order, begin_ms=MAX_MS)  # a broker whose clock is in the year 10000
    table, into = f"{site.database}.orders", ("--streams", queue, "--into", "orders")
    json_body = (*into, "--body", "json")
    schema = "id: long required\nprice: decimal(12,2)\nplaced_at: timestamp\ncoupon: string"

    (plan,) = (each["plan"] for each in site.run(*json_body, "--plan")["tables"].values())
    columns = {each["name"]: (each["type"], each["action"]) for each in plan["columns"]}
    assert columns["price"] == ("string", "new"), "of numbers and one text"
    assert columns["coupon"] == ("string", "new")
    assert (plan["table"], plan["messages"], plan["rows"]) == ("new", 125, 125)
    assert "price" in capfd.readouterr().err

    misfits = ("--schema", schema, "--misfits", "dead-letter")
    (plan,) = (each["plan"] for each in site.run(*json_body, *misfits, "--plan")["tables"].values())
    assert plan["reasons"] == ['price is no decimal(12,2): "a lot"']
    said = site.run(*json_body, *misfits)["tables"][table]
    assert (said["rows"], said["dead_letters"], said["times_moved"]) == (124, 1, 25)
    rows = site.rows("orders").sort_by("_offset").to_pylist()
    assert [row["price"] for row in rows[:2]] == [Decimal("20.00"), Decimal("19.99")]
    assert {row["placed_at"].isoformat() for row in rows} == {"2026-11-24T07:16:44.500000+00:00"}
    assert [row["coupon"] for row in rows[:2]] == ["7", "A7"]
    assert (rows[-1]["_offset"], rows[-1]["_timestamp"].year) == (124, 9999)


def _keyed(offset: int) -> bytes:
    """Seven keys with values, tombstones and, now and then, a message without a key."""
    body = b"" if offset % 11 == 3 else b'{"n":%d}' % offset
    if offset % 25 == 24:
        return encode_data(body)
    field = b"\xa1\x02k%d" % (offset % 7)
    return b"\x00Ss\xc0%c\x01%b" % (len(field) + 1, field) + encode_data(body)


def _dictionary(streams: dict[str, int]) -> dict[tuple[str, str], tuple[int, int]]:
    """What a table of the latest has to be of streams of so many such messages."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for stream, count in streams.items():
        for offset in (n for n in range(count) if n % 25 != 24):
            key = (stream, f"k{offset % 7}")
            if offset % 11 == 3:
                found.pop(key, None)
            else:
                found[key] = (offset, offset)
    return found


def test_the_latest_of_each_key_is_the_dictionary_also_after_a_run_that_died_before_its_commit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = f"latest-{secrets.token_hex(3)}"
    one, other = (site.stream(f"{queue}-{n}", n, None, _keyed) for n in (3, 1))
    arguments = (
        *("--streams", f"{queue}.*", "--into", "latest", "--body", "json", "--schema", "n: int"),
        *("--latest", "properties.message_id", "--buckets", "2"),
    )

    def latest() -> dict[tuple[str, str], tuple[int, int]]:
        rows = site.rows("latest").to_pylist()
        found = {(row["_stream"], row["_key"]): (row["_offset"], row["n"]) for row in rows}
        assert len(found) == len(rows)
        return found

    said = site.run(*arguments)["tables"][f"{site.database}.latest"]
    assert latest() == _dictionary({one: 75, other: 25})
    assert (said["no_key"], said["dead_letters"], said["tombstones"]) == (4, 4, 9)

    site.extend(one, 3, 2, None, message=_keyed)
    append = IcebergTable.append

    def dies(table: IcebergTable, *args: Any) -> AppendOutcome:
        if table.name.endswith(".latest"):
            raise OSError("killed before the commit")
        return append(table, *args)

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "append", dies)
        site.run(*arguments, ok=False)
    assert latest() == _dictionary({one: 75, other: 25})

    said = site.run(*arguments)["tables"][f"{site.database}.latest"]
    assert said["planned"] == {one: [[75, 125]]}
    assert latest() == _dictionary({one: 125, other: 25})
    dead = site.rows("latest_dead_letters").select(["stream", "offset"]).to_pylist()
    assert sorted((row["stream"], row["offset"]) for row in dead) == sorted(
        [*((one, n) for n in range(24, 125, 25)), (other, 24)]
    )
    assert site.run(*arguments)["tables"][f"{site.database}.latest"]["planned"] == {}


@pytest.mark.slow  # a Spark for each run; in memory: tests/unit/jobs/test_materialise_run.py
def test_a_job_that_is_killed_and_run_again_gives_every_row_once(site: Site) -> None:
    queue = f"killed-{secrets.token_hex(3)}"
    stream = site.stream(queue, 24, _json)
    arguments = ("--streams", queue, "--into", "killed", "--body", "json")
    small = ("--partition-bytes", "1000", "--window-bytes", "4000")
    assert _killed(site, *arguments, *small)
    done = site.program(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = site.rows("killed").column("_offset").to_pylist()
    dead = site.rows("killed_dead_letters").column("offset").to_pylist()
    expected = [offset for offset, _ in site.messages(stream)]
    assert sorted(rows + dead) == expected
    assert sorted(dead) == [n for n in expected if n % 40 == 13]


@pytest.mark.slow  # as above; in memory: tests/unit/jobs/test_latest.py
def test_a_table_of_the_latest_whose_job_is_killed_and_run_again_is_the_dictionary(
    site: Site,
) -> None:
    queue = f"killed-{secrets.token_hex(3)}"
    stream = site.stream(queue, 24, None, _keyed)
    arguments = (
        *("--streams", queue, "--into", "killed", "--body", "json"),
        *("--latest", "properties.message_id", "--buckets", "3"),
    )
    assert _killed(site, *arguments, "--partition-bytes", "1000", "--window-bytes", "4000")
    done = site.program(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = site.rows("killed").to_pylist()
    assert {(row["_stream"], row["_key"]): (row["_offset"], row["n"]) for row in rows} == (
        _dictionary({stream: 600})
    )
    assert len(rows) == len(_dictionary({stream: 600}))


def _killed(site: Site, *arguments: str) -> int:
    """Runs that were killed while they filled a table, of two."""
    rng = random.Random(4)
    killed = 0
    for _ in range(2):
        process = subprocess.Popen(
            site.command(*arguments), env=site.environment, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if b"commits" in line or b"new columns" in line:
                break
        time.sleep(rng.uniform(0, 1.5))
        killed += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return killed


def test_maintenance_makes_few_files_of_many_and_removes_what_is_too_old(site: Site) -> None:
    queue = f"kept-{secrets.token_hex(3)}"
    site.stream(queue, 12, _plain)
    arguments = ("--streams", queue, "--into", "kept", "--partition", "none")
    site.run(*arguments, "--partition-bytes", "1000")
    done = site.run(*arguments, "--maintain")["tables"][f"{site.database}.kept"]
    assert done["maintenance"]["rows"]["merged"] > done["maintenance"]["rows"]["into"] == 1
    assert sorted(site.rows("kept").column("offset").to_pylist()) == list(range(300))
    gone = site.run(*arguments, "--maintain", "--keep", "1d")["tables"]
    assert gone[f"{site.database}.kept"]["maintenance"]["rows"]["expired_rows"] == 300
    assert site.rows("kept").num_rows == 0
    assert site.run(*arguments)["tables"][f"{site.database}.kept"]["planned"] == {}


def test_small_streams_share_files_and_workers_merge_those_that_each_had_before(
    site: Site,
) -> None:
    queue = f"shared-{secrets.token_hex(3)}"
    streams = [site.stream(f"{queue}-{n}", 2, _json) for n in range(6)]
    arguments: tuple[str, ...] = ("--streams", f"{queue}-.", "--into", "shared")
    arguments = (*arguments, "--body", "json", "--partition", "none")
    own = site.run(*arguments)["tables"][f"{site.database}.shared"]
    for stream in streams:
        site.extend(stream, 2, 1, _json)
    arguments = (*arguments, "--files", "shared")
    more = site.run(*arguments)["tables"][f"{site.database}.shared"]
    # Rows and dead letters; a stream's own files were one of each at least.
    assert (own["files"] >= 12, more["files"], more["rows"]) == (True, 2, 6 * 24)
    for stream in streams:
        site.extend(stream, 3, 1, _json)

    done = site.run(*arguments, "--maintain")["tables"][f"{site.database}.shared"]
    kept = done["maintenance"]["rows"]
    assert (kept["merged"] > 6, kept["into"], kept["overtaken"]) == (True, 1, 0)
    rows = site.rows("shared").select(["_stream", "_offset", "who"]).to_pylist()
    dead = site.rows("shared_dead_letters").select(["stream", "offset"]).to_pylist()
    for stream in streams:
        mine = {row["_offset"]: row["who"] for row in rows if row["_stream"] == stream}
        bad = [row["offset"] for row in dead if row["stream"] == stream]
        assert sorted(bad) == [13, 53, 93]
        assert mine == {n: f"customer-{n % 7}" for n in range(100) if n not in bad}
    assert (len(rows), len(dead)) == (6 * 97, 6 * 3)
    assert site.run(*arguments)["tables"][f"{site.database}.shared"]["planned"] == {}


def test_a_worker_that_cannot_read_a_file_is_told_and_the_table_stays_as_it_was(
    site: Site,
) -> None:
    queue = f"gone-{secrets.token_hex(3)}"
    stream = site.stream(queue, 4, _plain)
    arguments = ("--streams", queue, "--into", "gone", "--partition", "none")
    site.run(*arguments, "--partition-bytes", "1000")
    bucket, key = site.warehouse[5:].partition("/")[0], sorted(_files(site, "gone"))[-1]
    body = site.emulator.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    site.emulator.client("s3").delete_object(Bucket=bucket, Key=key)
    before = _files(site, "gone")

    said = site.run(*arguments, "--maintain", ok=False)
    words = said["error"]["reason"]
    for part in (f"{site.database}.gone", stream, "offsets 0 to 99", "are as they were"):
        assert part in words
    site.emulator.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
    assert set(before) <= set(_files(site, "gone"))
    assert sorted(site.rows("gone").column("offset").to_pylist()) == list(range(100))
    kept = site.run(*arguments, "--maintain")["tables"][f"{site.database}.gone"]["maintenance"]
    assert kept["rows"]["into"] == 1
    assert sorted(site.rows("gone").column("offset").to_pylist()) == list(range(100))


def _files(site: Site, table: str) -> list[str]:
    """Keys of its data, wherever below the warehouse its place is."""
    bucket, _, under = f"{site.warehouse}{site.database}/{table}"[5:].partition("/")
    rows = site.emulator.client("s3").list_objects_v2(Bucket=bucket, Prefix=under)
    keys = [each["Key"] for each in rows.get("Contents", [])]
    return [key for key in keys if "/data/" in key and "_dead_letters" not in key]


def test_space_is_free_again_when_no_version_of_a_table_has_a_file_any_more(site: Site) -> None:
    queue = f"swept-{secrets.token_hex(3)}"
    stream = site.stream(queue, 8, _plain)
    arguments = ("--streams", queue, "--into", "swept", "--partition", "none")
    site.run(*arguments, "--partition-bytes", "1000")
    small = len(_files(site, "swept"))
    name = f"{site.database}.swept"
    done = site.run(*arguments, "--maintain", "--expire", "2d")["tables"][name]["maintenance"]
    # A commit of today is a version of today, so its files stay.
    assert done["rows"]["into"] == 1
    assert done["rows"]["swept"] == {"versions": 0, "files": 0, "bytes": 0}
    assert len(_files(site, "swept")) == small + 1

    place = Place("", "", "", "us-east-1", site.emulator.endpoint)
    tables = open_tables(
        TableRule(queue, name, "raw", TablePartition("none"), "first", None),
        place,
        site.warehouse,
    )
    tomorrow = time.time_ns() // 10**6 + 86_400_000
    told = sweep(tables.rows, first_schema("raw"), open_bucket(place), before_ms=tomorrow)

    assert told is not None
    assert (told.files > small, told.versions) == (True, 1)  # its manifests go, too
    assert len(_files(site, "swept")) == 1
    site.extend(stream, 8, 2, _plain)
    assert site.run(*arguments)["tables"][name]["planned"] == {stream: [[200, 250]]}
    loaded = tables.rows.load(first_schema("raw"))
    found = [
        offset
        for file in tables.rows.files(loaded)
        for batch in tables.rows.rows(loaded, file.path)
        for offset in batch.column("offset").to_pylist()
    ]
    assert sorted(found) == list(range(250))


def _refused(site: Site, *arguments: str) -> str:
    done = site.program(*arguments)
    assert done.returncode != 0
    return done.stderr + done.stdout


def test_arguments_that_make_no_sense_are_refused_in_words(site: Site) -> None:
    said = site.run("--streams", "(a", "--into", "x", ok=False)
    assert "the pattern" in said["error"]["reason"]
    some = ("--streams", "nobody", "--into", "x")
    assert "2d at least" in _refused(site, *some, "--maintain", "--expire", "1d")
    assert "--maintain" in _refused(site, *some, "--expire", "7d")
    assert (
        "no stream" in site.run("--streams", "nobody", "--into", "x", ok=False)["error"]["reason"]
    )
    wrong = site.run(*some, "--body", "json", "--schema", "price: money", ok=False)
    assert "price: 'money' is no type; there are boolean, int" in wrong["error"]["reason"]
    assert (
        "no file" in site.run(*some, "--body", "json", "--schema", "x", ok=False)["error"]["reason"]
    )
