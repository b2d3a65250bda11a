"""`spark.read.format("rabbitmq_stream")`: rows, columns, filters, versions, and what goes wrong."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from coldstream.columns.schema import ALL, COLUMNS, DEFAULT, select
from coldstream.manifest.entries import Entries
from coldstream.manifest.root import LastChunk
from coldstream.names import DataKey
from tests.spark.conftest import BUCKET, Site, Stream, collected, in_groups, plain_chunks
from tests.support.independent import assert_same, rows_of
from tests.support.odd_messages import chunk_of, messages
from tests.support.tier import FIXTURES, PREFIX, fragment_of
from tests.unit.columns.test_reference import DATA, section, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.emulator

#: But VARIANTs: PySpark 4.1 makes no Arrow of one that is null.
EVERYTHING = tuple(name for name in COLUMNS if not name.endswith("_variant"))


def load(spark: SparkSession, stream: str, **options: Any) -> DataFrame:
    reader = spark.read.format("rabbitmq_stream").option("stream", stream)
    return reader.options(**{"partitionBytes": "100k", **options}).load()


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_every_message_of_a_real_broker_is_a_row(
    spark: SparkSession, fixtures: dict[str, Stream], name: str
) -> None:
    stream = fixtures[name]
    frame = load(spark, stream.name, columns="*")

    right = stream.table(ALL)
    assert collected(frame, right.schema).equals(right)


def test_every_codec_property_and_damaged_message_is_as_the_plain_decoder_says(
    spark: SparkSession, drawn: Stream
) -> None:
    frame = load(spark, "drawn", columns=",".join(EVERYTHING))

    right = drawn.table(EVERYTHING)
    assert right.num_rows > 3000
    assert right["body_kind"].to_pylist().count("bytes") > 100
    assert right["error"].null_count < right.num_rows
    assert frame.rdd.getNumPartitions() > 5
    assert collected(frame, right.schema).equals(right)


def test_spark_gives_what_a_decoder_without_our_code_reads(spark: SparkSession, site: Site) -> None:
    wires = list(messages())
    chunks = [chunk_of(0, wires[:90], 4), chunk_of(90, wires[90:], 2)]
    site.add("__odd_1", [chunks], queue="odd")
    names = [name for name in COLUMNS if not name.endswith("_variant")]

    found = load(spark, "odd", columns=",".join(names)).orderBy("offset").toArrow().to_pylist()

    assert_same(found, list(rows_of(b"OSIL\x00\x00\x00\x01" + b"".join(chunks), "__odd_1")))


def test_the_default_columns_are_those_that_need_no_message_and_a_star_means_all(
    spark: SparkSession, drawn: Stream
) -> None:
    found, everything = load(spark, "drawn"), load(spark, "drawn", columns="*")

    assert found.columns == list(DEFAULT)
    assert collected(found, drawn.table().schema).equals(drawn.table())
    assert everything.columns == list(ALL)


def test_values_are_variants_that_spark_reads_by_path_and_type(
    spark: SparkSession, drawn: Stream
) -> None:
    found = (
        load(spark, "drawn", columns="application_properties_json,application_properties_variant")
        .selectExpr(
            "application_properties_json as tagged",
            "schema_of_variant(application_properties_variant) as kind",
            "variant_get(application_properties_variant, '$.k1') is not null as there",
        )
        .toArrow()
        .to_pylist()
    )

    assert sum(row["tagged"] is not None for row in found) > 1000
    for row in found:
        keys = json.loads(row["tagged"] or "{}")
        assert (row["kind"] is None) == (row["tagged"] is None)
        assert row["kind"] is None or row["kind"].startswith("OBJECT<")
        assert row["there"] == ("k1" in keys)


@pytest.mark.parametrize("count", [2, 31, 32, 50])
def test_every_field_of_a_variant_is_found_whatever_script_its_name_is_in(
    spark: SparkSession, site: Site, count: int
) -> None:
    keys = ["\uff76", "\U0001f600", *(f"k{number}" for number in range(count - 2))]
    pairs = b"".join(text(each) + text(f"of {each}") for each in keys)
    frame = b"\xd1" + struct.pack(">II", len(pairs) + 4, 2 * count) + pairs
    chunks = [chunk_of(0, [section(0x74, frame) + DATA], None)]
    site.add(f"__script{count}_1", [chunks], queue=f"script{count}")
    found = load(spark, f"script{count}", columns="application_properties_variant").selectExpr(
        "application_properties_variant as made",
        f"parse_json('{json.dumps({each: f'of {each}' for each in keys}, ensure_ascii=False)}')"
        " as control",
    )

    for column in ("made", "control"):
        gets = [f"variant_get({column}, '$[\"{each}\"]', 'string')" for each in keys]
        *values, kind = found.selectExpr(*gets, f"schema_of_variant({column})").head() or ()
        assert values == [f"of {each}" for each in keys]
        assert kind.startswith("OBJECT<")


def test_columns_come_in_the_order_asked_for(spark: SparkSession, drawn: Stream) -> None:
    names = ["body", "properties.subject", "properties.message_id", "offset"]

    frame = load(spark, "drawn", columns=",".join(names))

    right = drawn.table(names)
    assert frame.columns == ["body", "properties", "offset"]
    assert collected(frame, right.schema).equals(right)


def test_a_schema_of_the_user_prunes_columns_and_fields(spark: SparkSession, drawn: Stream) -> None:
    text = "offset long, properties struct<subject: string, creation_time: timestamp>, raw binary"

    frame = load_with_schema(spark, text)

    right = drawn.table(["offset", "properties.subject", "properties.creation_time", "raw"])
    assert collected(frame, right.schema).equals(right)


def load_with_schema(spark: SparkSession, text: str) -> DataFrame:
    return spark.read.format("rabbitmq_stream").schema(text).option("stream", "drawn").load()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("offset string", "column offset is bigint, not string"),
        ("offest long", "there is no column 'offest'"),
        ("properties struct<sub: string>", "there is no column 'properties.sub'"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_in_words(
    spark: SparkSession, drawn: Stream, text: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        load_with_schema(spark, text).collect()


def test_filters_give_the_rows_that_spark_itself_would_keep(
    spark: SparkSession, plain: Stream
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    rng = random.Random(7)
    start = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    assert plain.table(["timestamp"])["timestamp"][0].as_py() == start
    options = {"columns": "offset,timestamp,body", "partitionBytes": "60k"}
    unfiltered = load(spark, "plain", **options).toArrow().to_pylist()

    def drawn_filter() -> tuple[Any, Any]:
        """A filter for Spark, and the same as a function of a row."""
        if rng.random() < 0.5:
            column, value = F.col("offset"), rng.randrange(-20, 1520)
            get: Any = lambda row: row["offset"]  # noqa: E731
            values = [rng.randrange(0, 1500) for _ in range(4)]
        else:
            step = rng.choice([0, 0, 500, 1])
            value = start + timedelta(milliseconds=rng.randrange(-50, 3100), microseconds=step)
            column, get = F.col("timestamp"), lambda row: row["timestamp"]
            values = [start + timedelta(milliseconds=10 * rng.randrange(300)) for _ in range(3)]
        kind = rng.randrange(7)
        return [
            (column == value, lambda row: get(row) == value),
            (column < value, lambda row: get(row) < value),
            (column <= value, lambda row: get(row) <= value),
            (column > value, lambda row: get(row) > value),
            (column >= value, lambda row: get(row) >= value),
            (column.isin(values), lambda row: get(row) in values),
            (column != value, lambda row: get(row) != value),
        ][kind]

    for _ in range(16):
        tests = [drawn_filter() for _ in range(rng.choice([1, 1, 2, 3]))]
        filtered, right = load(spark, "plain", pushFilters=True, **options), unfiltered
        for test, keeps in tests:
            filtered = filtered.filter(test)
            right = [row for row in right if keeps(row)]
        found = filtered.toArrow().to_pylist()
        assert sorted(found, key=offset) == sorted(right, key=offset), tests


def offset(row: dict[str, Any]) -> int:
    return int(row["offset"])


def test_a_dataframe_that_is_used_again_has_all_its_rows_whatever_was_filtered_before(
    spark: SparkSession, plain: Stream
) -> None:
    frame = load(spark, "plain", columns="offset,timestamp")
    first, last = frame.filter("offset < 10"), frame.filter("offset >= 1480")

    assert [each.count() for each in (first, frame, last, frame)] == [10, 1500, 20, 1500]
    assert first.union(last).count() == 30
    assert first.union(frame).count() == 1510
    assert frame.join(last, "offset").count() == 20
    assert frame.filter("offset < 10 or offset % 2 = 1").count() == 755


def test_a_filter_on_something_else_stays_with_spark(spark: SparkSession, plain: Stream) -> None:
    frame = load(spark, "plain", columns="*", pushFilters=True).filter(
        "length(body) > 0 and epoch = 1 and offset < 10"
    )

    plan = frame._jdf.queryExecution().executedPlan().toString()

    assert "epoch" in plan.split("Filter")[1].split("\n")[0]
    assert [row["offset"] for row in frame.sort("offset").collect()] == list(range(10))


def test_a_time_that_python_cannot_hold_does_not_stop_a_query(
    spark: SparkSession, plain: Stream
) -> None:
    far = "timestamp'290000-01-01'"
    counts = {
        text: load(spark, "plain", columns="offset,timestamp").filter(text).count()
        for text in (
            f"timestamp >= {far}",
            f"timestamp < {far}",
            f"timestamp < {far} and offset < 10",
            f"timestamp in ({far}, timestamp'2026-09-21 14:13:20')",
            "timestamp > timestamp'-10000-01-01'",
        )
    }

    assert list(counts.values()) == [0, 1500, 10, 5, 1500]


def test_a_session_may_switch_pushdown_off_again(spark: SparkSession, plain: Stream) -> None:
    conf = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(conf, "false")
    try:
        frame = load(spark, "plain", columns="offset").filter("offset < 10 or offset = 70")
        assert frame.count() == 11
        assert load(spark, "plain", columns="offset").filter("offset >= 1490").count() == 10
    finally:
        spark.conf.set(conf, "true")
    frame = load(spark, "plain", pushFilters=True).filter("offset < 10")
    plan = frame._jdf.queryExecution().executedPlan()
    assert "Filter (" not in plan.toString()  # taken over again


def test_a_pattern_that_matches_nothing_is_an_empty_table(
    spark: SparkSession, plain: Stream
) -> None:
    assert load(spark, "nobody.*").count() == 0


def test_a_query_begins_and_ends_where_it_is_told(spark: SparkSession, plain: Stream) -> None:
    def offsets(**options: str) -> list[int]:
        rows = load(spark, "plain", columns="offset", **options).sort("offset").collect()
        return [row["offset"] for row in rows]

    assert offsets(startingOffset="7", endingOffset="23") == list(range(7, 23))
    assert offsets(startingOffset="last") == list(range(1495, 1500))
    assert offsets(endingOffset="2026-09-21T14:13:20.020Z") == list(range(10))


def test_streams_are_found_by_queue_directory_list_and_pattern(
    spark: SparkSession, fixtures: dict[str, Stream], plain: Stream
) -> None:
    def streams(text: str) -> set[str]:
        return {row["stream"] for row in load(spark, text).select("stream").distinct().collect()}

    one = fixtures["plain-3.10.8"].name
    assert streams(f"{one},plain") == {one, "__plain_1"}
    assert streams("fx.codecs.*,fx.plain.*") == {
        each.name for name, each in fixtures.items() if name.startswith(("codecs", "plain"))
    }
    assert load(spark, "//plain", columns="offset").count() == 1500
    with pytest.raises(Exception, match="no stream has the directory or queue name 'nobody'"):
        load(spark, "nobody").collect()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colums": "offset"}, "there is no option 'colums'; did you mean columns"),
        ({"columns": "offset,bdy"}, "there is no column 'bdy'"),
        ({"rows": "bytes"}, "option rows: expected messages, chunks, tracking, fragments"),
        ({"startingOffset": "soon"}, "option startingOffset: expected first, last, next"),
        ({"partitionBytes": "-1"}, "option partitionBytes: must be a size"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: expected true or false"),
        ({"maxBytesPerTrigger": "1g"}, "option maxBytesPerTrigger is for streaming reads"),
        ({"bucket": "", "prefix": "no"}, "option prefix: not a key prefix"),
        ({"asOfVersion": "99"}, "there is no version 99 yet"),
        ({"startingOffset": "99999"}, "99999 lies beyond the end, the next offset .* is 1500"),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_words(
    spark: SparkSession, plain: Stream, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words) as caught:
        load(spark, "plain", **options).collect()

    assert "Traceback" not in str(caught.value), "one sentence, not the calls that led to it"
    assert str(caught.value).index("coldstream.errors") < 100


def test_chunks_tracking_and_fragments_are_tables_too(
    spark: SparkSession, fixtures: dict[str, Stream], site: Site
) -> None:
    stream = fixtures["dedup-4.3.6"]

    chunks = load(spark, stream.name, rows="chunks").collect()
    tracking = load(spark, stream.name, rows="tracking", columns="reference,type,value")
    fragments = load(spark, stream.name, rows="fragments").collect()

    assert sum(row["size"] for row in chunks) == sum(len(each) for each in stream.chunks)
    assert {row["reference"] for row in tracking.collect()} >= {"prod-A", "prod-B"}
    item = site.tier.catalog.get(stream.name)
    assert item is not None
    assert sum(row["size"] for row in fragments) == item.total_size


def test_metadata_tables_say_by_catalog_manifest_and_index_what_reading_says(
    spark: SparkSession, fixtures: dict[str, Stream], site: Site
) -> None:
    stream = fixtures["dedup-4.3.6"]
    item = site.tier.catalog.get(stream.name)
    assert item is not None

    read = load(spark, stream.name, rows="chunks", columns="offset,timestamp,size").collect()
    told = load(spark, stream.name, table="chunks", columns="offset,timestamp,size").collect()
    everything = spark.read.format("rabbitmq_stream").option("table", "streams").load()
    rows = {row["stream"]: row for row in everything.collect()}
    one = load(spark, stream.name, table="fragments").groupBy("stream").sum("size", "records")

    assert sorted(told) == sorted(read)
    assert rows.keys() >= {each.name for each in fixtures.values()}
    assert rows[stream.name]["next_offset"] == item.next_offset
    assert [tuple(row)[:2] for row in one.collect()] == [(stream.name, item.total_size)]
    late = load(spark, stream.name, table="chunks", pushFilters=True).filter(
        f"offset >= {sorted(read)[3][0]}"
    )
    assert late.count() == len(read) - 3


def test_nothing_to_read_is_no_rows(spark: SparkSession, plain: Stream) -> None:
    assert load(spark, "plain", startingOffset="next").count() == 0
    assert load(spark, "plain", pushFilters=True).filter("offset > 5000").count() == 0


def test_an_earlier_version_is_read_as_it_was(spark: SparkSession, site: Site) -> None:
    chunks = plain_chunks(20)
    root = site.tier.add("__versions_1", in_groups(chunks[:10], 5))
    more = site.tier.upload("__versions_1", chunks[10:], epoch=1, floor=0)
    site.tier.commit("__versions_1", root.appended([more], LastChunk(95, 1)))

    counts = [load(spark, "__versions_1", **given).count() for given in ({}, {"asOfVersion": "1"})]

    assert counts == [100, 50]


def test_a_query_outlives_consolidation_and_tells_of_retention(
    spark: SparkSession, site: Site
) -> None:
    chunks = plain_chunks(40)
    root = site.tier.add("__moving_1", in_groups(chunks, 10))
    frame = load(spark, "__moving_1", partitionBytes="3k", columns="offset,raw")
    right = Stream("__moving_1", chunks).table(["offset", "raw"])
    old = [site.tier.key(root, "__moving_1", number) for number in range(4)]
    halves = [
        site.tier.upload("__moving_1", part, epoch=1, floor=0)
        for part in (chunks[:20], chunks[20:])
    ]

    # Spark has planned once it knows the partitions; only then the manifest moves.
    planned = frame.rdd
    assert planned.getNumPartitions() > 4
    root = site.tier.commit("__moving_1", replace(root, entries=Entries.of(halves)))
    delete(site, *old)
    assert sorted(row["offset"] for row in planned.collect()) == right["offset"].to_pylist()

    strict = frame.rdd
    assert strict.getNumPartitions() > 4
    told = {"columns": "offset,error", "failOnDataLoss": "false"}
    lax = load(spark, "__moving_1", partitionBytes="3k", **told).rdd
    assert lax.getNumPartitions() > 4
    site.tier.commit("__moving_1", replace(root, first_offset=100, entries=Entries.of(halves[1:])))
    delete(site, site.tier.key(root, "__moving_1", 0))
    with pytest.raises(Exception, match="removed by retention"):
        strict.collect()
    rows = lax.collect()
    assert [row["offset"] for row in rows if row["error"] is None] == list(range(100, 200))
    assert all("retention" in row["error"] for row in rows if row["offset"] < 100)


def delete(site: Site, *keys: str) -> None:
    for key in keys:
        site.emulator.client("s3").delete_object(Bucket=BUCKET, Key=key)


def test_damage_and_holes_are_rows_with_an_error(spark: SparkSession, site: Site) -> None:
    chunks = plain_chunks(30)
    stream = "__damaged_1"
    good = site.tier.upload(stream, chunks[:10], epoch=1, floor=0)
    bad = upload_damaged(site, stream, chunks[10:20], 3 * len(chunks[0]) + 90)
    rest = site.tier.upload(stream, plain_chunks(5, first=200), epoch=1, floor=0)
    site.add(stream, [good, bad, site.tier.hole(100, 200), rest])

    rows = load(spark, stream, columns="*", failOnDataLoss="false").sort("offset").collect()

    errors = {row["offset"]: row["error"] for row in rows if row["error"]}
    assert list(errors) == [65, 66, 67, 68, 69, 100]
    assert "CRC" in errors[66]
    assert "lost before they could be uploaded" in errors[100]
    assert [row["offset"] for row in rows] == [*range(101), *range(200, 225)]
    with pytest.raises(Exception, match="offsets 100 to 199 were lost"):
        load(spark, stream).collect()
    with pytest.raises(Exception, match="the chunk's CRC does not match"):
        load(spark, stream, failOnDataLoss="false", onCorrupt="fail").collect()


def upload_damaged(site: Site, stream: str, chunks: list[bytes], position: int) -> Any:
    data, trailer = fragment_of(chunks, epoch=1)
    broken = bytearray(data)
    broken[8 + position] ^= 1
    uid = next(site.tier.uids)
    key = DataKey(stream, trailer.first_offset, trailer.next_offset, 1, uid)
    site.tier.store.put(key.path(PREFIX), bytes(broken), write_id=str(uid))
    from coldstream.manifest.entries import Entry, EntryKind

    return Entry(
        trailer.first_offset, trailer.next_offset, trailer.min_timestamp, trailer.max_timestamp,
        EntryKind.FRAGMENT, len(data), trailer.records, 1, uid,
    )  # fmt: skip


def test_a_large_result_is_summed_by_spark_as_by_the_plain_decoder(
    spark: SparkSession, drawn: Stream
) -> None:
    frame = load(spark, "drawn", partitionBytes="60k", columns="*").selectExpr(
        "count(*)", "sum(length(body))", "max(offset)", "count(properties.subject)"
    )
    right = drawn.table(EVERYTHING)
    bodies = [each.as_py() for each in right["body"]]
    subjects = pa.compute.struct_field(right["properties"], "subject")

    assert tuple(frame.collect()[0]) == (
        right.num_rows,
        sum(len(each) for each in bodies if each is not None),
        right["offset"][-1].as_py(),
        len(subjects) - subjects.null_count,
    )
    assert select().names
