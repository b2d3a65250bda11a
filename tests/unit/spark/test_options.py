"""Options: what they mean, what stands in for them, and what is refused."""

from __future__ import annotations

import pytest

from coldstream import deployment
from coldstream.errors import InvalidInputError
from coldstream.reader.spec import First, Offset, Timestamp
from coldstream.spark.options import AsOf, Options, Rows, parse_options, refuse_for
from coldstream.spark.plan import Sizes

ENVIRONMENT = {
    deployment.ENV_BUCKET: "b",
    deployment.ENV_TABLE: "t",
    deployment.ENV_PREFIX: "mine/",
}


def parse(**given: str) -> Options:
    return parse_options({"stream": "orders", **given}, ENVIRONMENT)


def test_what_is_not_given_comes_from_the_environment_as_for_the_command_line() -> None:
    place = parse().place

    assert (place.bucket, place.table, place.prefix) == ("b", "t", "mine/")
    assert parse(bucket="x", prefix="").place.bucket == "x"
    assert parse(prefix="").place.prefix == "mine/"


def test_names_of_options_are_the_same_whatever_their_case() -> None:
    options = parse(STARTINGoffset="7", partitionbytes="64m", MaxPartitions="10")

    assert options.starting == Offset(7)
    assert options.sizes == Sizes(64 * 2**20, 10)


def test_every_option_has_its_meaning() -> None:
    options = parse(
        stream="orders, //returns,eu-.*",
        columns="offset, body",
        rows="chunks",
        startingOffset="timestamp:5",
        endingOffset="9",
        failOnDataLoss="FALSE",
        onCorrupt="fail",
        maxBytesPerTrigger="1g",
        maxOffsetsPerTrigger="1000",
        vhost="/",
    )

    assert options.streams == ("orders", "//returns", "eu-.*")
    assert options.several
    assert options.columns == ("offset", "body")
    assert options.rows is Rows.CHUNKS
    assert (options.starting, options.ending) == (Timestamp(5), Offset(9))
    assert (options.fail_on_data_loss, options.fail_on_corrupt) == (False, True)
    assert (options.max_bytes, options.max_offsets) == (2**30, 1000)
    assert parse().starting == First()
    assert not parse().several
    assert (parse().push_filters, parse(pushFilters="true").push_filters) == (False, True)
    assert parse(asOfVersion="17").as_of == AsOf(17)
    assert str(parse(asOfVersion="17.00000000000000ff").as_of) == "17.00000000000000ff"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stream": " , "}, "option stream is missing"),
        ({"strem": "x"}, "there is no option 'strem'; did you mean stream?"),
        ({"path": "x"}, "there is no option 'path'"),
        ({"partitionBytes": "0"}, "option partitionBytes: must be a size"),
        ({"partitionBytes": "ten"}, "option partitionBytes: must be a size"),
        ({"partitionBytes": "64mb"}, "write 64MiB"),
        ({"onCorrupt": "ignore"}, "option onCorrupt: expected rows or fail, not 'ignore'"),
        ({"asOfVersion": "-1"}, "option asOfVersion: expected the number of a version"),
        ({"asOfVersion": "1", "stream": "a,b"}, "every stream has versions of its own"),
        ({"startingOffset": "2026-13-01"}, "option startingOffset"),
        ({"startingOffset": "1h"}, "option startingOffset"),  # relative times: the command line's
        ({"endingOffset": "-10"}, "option endingOffset"),
        (
            {"startingOffset": str(2**63)},
            "option startingOffset: offsets of a table .* 2\\*\\*63 - 1",
        ),
        ({"endingOffset": str(2**64 - 1)}, "option endingOffset: offsets of a table"),
        ({"prefix": "no-slash"}, "option prefix"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        parse(**given)


@pytest.mark.parametrize("rows", ["chunks", "tracking", "fragments"])
@pytest.mark.parametrize("name", ["bodyType", "bodyFormat", "contentEncoding", "maxBodyBytes"])
def test_what_is_about_bodies_is_refused_where_there_are_none(rows: str, name: str) -> None:
    values = {"bodyType": "json", "bodyFormat": "bytes", "contentEncoding": "decode"}
    given = {name: values.get(name, "1KiB"), "rows": rows}

    with pytest.raises(InvalidInputError, match=f"option {name} is about bodies: {rows} have none"):
        refuse_for(parse(**given), streaming=False, given=given)


@pytest.mark.parametrize("more", [{}, {"bodyType": "json", "schemaRegistry": "http://registry"}])
def test_a_schema_that_no_body_is_read_by_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="a schema is for bodies of avro or protobuf"):
        parse(bodySchema="/orders.avsc", **more)


def test_a_bucket_without_a_table_is_told_by_both_names() -> None:
    with pytest.raises(InvalidInputError, match=r"catalog \(or COLDSTREAM_TABLE\) is missing"):
        parse_options({"stream": "orders", "bucket": "b"}, {})
    assert parse_options({"stream": "orders", "endpoint": "file:///x"}, {}).place.directory == "/x"


def test_options_of_streaming_and_of_batch_reads_are_told_apart() -> None:
    for given in ({"maxBytesPerTrigger": "1"}, {"maxoffsetspertrigger": "1"}):
        with pytest.raises(InvalidInputError, match="for streaming reads"):
            refuse_for(parse(**given), streaming=False, given=given)
    for given in ({"asOfVersion": "1"}, {"endingOffset": "1"}, {"pushFilters": "true"}):
        with pytest.raises(InvalidInputError, match="for batch reads"):
            refuse_for(parse(**given), streaming=True, given=given)
    with pytest.raises(InvalidInputError, match="a streaming read gives messages"):
        refuse_for(parse(rows="chunks"), streaming=True, given={})
