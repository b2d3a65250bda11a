from __future__ import annotations

from dataclasses import replace

import boto3

from coldstream import deployment
from functions.reconcile import handler
from tests.functions.conftest import Invocation, Site
from tests.support.aws import BUCKET, PREFIX, TABLE
from tests.support.remote import STREAM, chain, piece

OTHER = "__invoices_1745252105682952999"
BOTH = {"work": [{"stream": STREAM}, {"stream": OTHER}]}


def test_runs_are_completed_without_any_event(site: Site) -> None:
    site.upload(*chain(3))

    answer = handler({"work": [{"stream": STREAM}]}, Invocation())

    assert (answer["left"], answer["streams"], answer["fragments"]) == ([], 1, 3)
    assert site.root().next_offset == 30
    assert site.metrics()[deployment.METRIC_FRAGMENTS_COMMITTED] == 3


def test_a_hole_is_told_by_log_and_metric_also_where_its_event_was_lost(site: Site) -> None:
    site.upload(piece(0, 10), piece(25, 30))
    site.hole(10, 25)

    handler({"work": [{"stream": STREAM}]}, Invocation())

    assert site.root().next_offset == 30
    (line,) = site.logged("WARNING")
    assert (line["stream"], line["first_offset"], line["next_offset"]) == (STREAM, 10, 25)
    told = site.metrics()
    assert (told[deployment.METRIC_HOLES_COMMITTED], told[deployment.METRIC_OFFSETS_GIVEN_UP]) == (
        1,
        15,
    )


def test_a_bad_fragment_is_logged_with_stream_offset_and_key(site: Site) -> None:
    (path,) = site.upload(replace(piece(0, 10), data=b"garbage"))

    assert handler({"work": [{"stream": STREAM}]}, Invocation())["refused"] == 1

    (line,) = site.logged("ERROR")
    assert (line["stream"], line["offset"], line["key"]) == (STREAM, 0, path)
    assert site.metrics()[deployment.METRIC_FRAGMENTS_REFUSED] == 1


def test_a_stream_that_fails_is_named_and_the_others_are_brought_forward(site: Site) -> None:
    site.claimed(OTHER)
    site.upload(*chain(3, stream=OTHER))
    item = site.context.catalog.get(STREAM)
    assert item is not None
    site.s3.delete_object(Bucket=BUCKET, Key=item.root_key)
    site.context.roots._roots.clear()

    answer = handler(BOTH, Invocation())

    assert (answer["failed"], answer["left"]) == (1, [])
    assert site.root(OTHER).next_offset == 30
    (line,) = site.logged("ERROR")
    assert (line["stream"], line["key"]) == (STREAM, item.root_key)
    assert item.root_key in line["message"]


def test_without_time_the_streams_are_left_for_the_next_call(site: Site) -> None:
    answer = handler(BOTH, Invocation(remaining_ms=9_000))

    assert answer["left"] == BOTH["work"]


def test_a_stream_whose_item_is_lost_is_adopted_and_brought_forward(site: Site) -> None:
    site.upload(*chain(3))
    handler({"work": [{"stream": STREAM}]}, Invocation())
    site.upload(*chain(2, start=30))
    boto3.client("dynamodb").delete_item(
        TableName=TABLE, Key={"stream": {"S": PREFIX + STREAM}, "item": {"S": "catalog"}}
    )

    answer = handler({"work": [{"stream": STREAM}]}, Invocation())

    assert (answer["adopted"], answer["fragments"]) == (1, 2)
    assert site.root().next_offset == 50
    assert handler({"work": [{"stream": STREAM}]}, Invocation()).get("adopted", 0) == 0
