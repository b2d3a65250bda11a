from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment
from functions import _runtime
from functions.commit_runs import handler
from tests.functions.conftest import Invocation, Site
from tests.support import faults
from tests.support.aws import PREFIX
from tests.support.remote import STREAM, chain, messages, piece, s3_event

EVENT = json.loads((Path(__file__).parents[1] / "events" / "s3SqsEvent.json").read_text())
OTHER = "__invoices_1745252105682952999"


def sqs_event(*bodies: str) -> dict[str, Any]:
    """An event of Lambda's SQS trigger as AWS documents it, with these bodies."""
    (template,) = EVENT["Records"]
    return {
        "Records": [
            {**template, "messageId": message_id, "body": body}
            for message_id, body in messages(bodies)
        ]
    }


def failures(answer: dict[str, Any]) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def test_a_batch_of_good_messages_moves_the_manifest_and_fails_none(site: Site) -> None:
    fragments = chain(5)
    paths = site.upload(*fragments)

    answer = handler(sqs_event(*map(s3_event, paths)), Invocation())

    assert answer == {"batchItemFailures": []}
    assert site.root().next_offset == 50
    assert site.metrics() == {
        deployment.METRIC_COMMITS: 1,
        deployment.METRIC_CONFLICTS: 0,
        deployment.METRIC_FRAGMENTS_COMMITTED: 5,
        deployment.METRIC_BYTES_COMMITTED: sum(len(each.data) for each in fragments),
        deployment.METRIC_FRAGMENTS_REFUSED: 0,
        deployment.METRIC_EVENTS_REFUSED: 0,
        deployment.METRIC_HOLES_COMMITTED: 0,
        deployment.METRIC_OFFSETS_GIVEN_UP: 0,
    }
    (line,) = [each for each in site.logged("INFO") if each["message"] == "committed"]
    assert (line["stream"], line["next_offset"], line["fragments"]) == (STREAM, 50, 5)


def test_a_hole_is_counted_and_its_offsets_are_named(site: Site) -> None:
    paths = site.upload(piece(0, 10), piece(25, 30))

    handler(sqs_event(*map(s3_event, [*paths, site.hole(10, 25)])), Invocation())

    assert site.root().next_offset == 30
    (line,) = site.logged("WARNING")
    assert (line["stream"], line["first_offset"], line["next_offset"]) == (STREAM, 10, 25)
    told = site.metrics()
    assert (told[deployment.METRIC_HOLES_COMMITTED], told[deployment.METRIC_OFFSETS_GIVEN_UP]) == (
        1,
        15,
    )


def test_exactly_the_bad_messages_of_a_mixed_batch_fail(site: Site) -> None:
    site.claimed(OTHER)
    bad = replace(piece(10, 20), data=b"garbage")
    unknown = piece(20, 30, stream="__nobody_1")
    good, _, _, theirs = site.upload(piece(0, 10), bad, unknown, piece(0, 10, stream=OTHER))

    answer = handler(
        sqs_event(
            s3_event(good),  # m0
            "not json",  # m1
            s3_event(bad.path(PREFIX)),  # m2
            s3_event(theirs),  # m3
            s3_event(unknown.path(PREFIX)),  # m4
            s3_event("somebody/else.txt"),  # m5
            json.dumps({"stream": STREAM}),  # m6
            (Path(__file__).parents[1] / "events" / "s3TestEvent.json").read_text(),  # m7
        ),
        Invocation(),
    )

    assert sorted(failures(answer)) == ["m1", "m2", "m4", "m5"]
    assert site.root().next_offset == 10
    assert site.root(OTHER).next_offset == 10
    metrics = site.metrics()
    assert metrics[deployment.METRIC_EVENTS_REFUSED] == 4
    assert metrics[deployment.METRIC_FRAGMENTS_REFUSED] == 1
    assert metrics[deployment.METRIC_COMMITS] == 2


def test_a_refused_fragment_is_logged_with_stream_offset_and_key(site: Site) -> None:
    (path,) = site.upload(replace(piece(0, 10), data=b"garbage"))

    handler(sqs_event(s3_event(path)), Invocation())

    (line,) = site.logged("ERROR")
    assert (line["stream"], line["offset"], line["key"]) == (STREAM, 0, path)
    for part in (STREAM, "offset 0", path):
        assert part in line["message"]


def test_an_unknown_stream_is_logged_with_stream_offset_key_and_message(site: Site) -> None:
    (path,) = site.upload(piece(20, 30, stream="__nobody_1"))

    answer = handler(sqs_event(s3_event(path)), Invocation())

    assert failures(answer) == ["m0"]
    (line,) = site.logged("ERROR")
    assert (line["stream"], line["offset"], line["key"]) == ("__nobody_1", 20, path)
    assert (line["kind"], line["message_id"]) == ("not_found", "m0")


def test_an_empty_object_under_a_right_key_is_refused_and_blocks_nothing(site: Site) -> None:
    (bad, good) = site.upload(replace(piece(0, 10, uid=1), data=b""), piece(0, 10, uid=2))

    answer = handler(sqs_event(s3_event(bad), s3_event(good)), Invocation())

    assert failures(answer) == ["m0"]
    assert site.root().next_offset == 10


def test_an_event_that_comes_twice_changes_nothing_the_second_time(site: Site) -> None:
    (path,) = site.upload(piece(0, 10))
    handler(sqs_event(s3_event(path)), Invocation())
    before = site.root()

    assert handler(sqs_event(s3_event(path), s3_event(path)), Invocation()) == {
        "batchItemFailures": []
    }
    assert site.root() == before


def test_an_outage_of_the_store_fails_the_messages_and_a_later_delivery_succeeds(
    site: Site,
) -> None:
    (path,) = site.upload(piece(0, 10))
    faults.answer_error(site.s3, "ListObjectsV2", 503, "SlowDown")

    assert failures(handler(sqs_event(s3_event(path)), Invocation())) == ["m0"]
    assert handler(sqs_event(s3_event(path)), Invocation()) == {"batchItemFailures": []}
    assert site.root().next_offset == 10


def test_a_commit_whose_answer_is_lost_counts_once(site: Site) -> None:
    (path,) = site.upload(piece(0, 10))
    faults.lose_answers(site.context.catalog._client, "UpdateItem", 1)  # type: ignore[attr-defined]

    assert handler(sqs_event(s3_event(path)), Invocation()) == {"batchItemFailures": []}
    assert site.root().version == 2
    assert site.metrics()[deployment.METRIC_COMMITS] == 1


def test_an_empty_batch_is_no_error(site: Site) -> None:
    assert handler({"Records": []}, Invocation()) == {"batchItemFailures": []}


@pytest.mark.parametrize("key", ["\ud800", "\udfff/\0\n"])
def test_an_event_whose_key_is_no_text_is_told_in_a_line_that_can_be_written(
    site: Site, key: str
) -> None:
    site.log.close()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "utf-8", write_through=True)  # as a Lambda's standard output
    logged = _runtime.logger.registered_handler
    assert isinstance(logged, logging.StreamHandler)
    logged.setStream(stream)

    answer = handler(
        sqs_event(json.dumps({"Records": [{"s3": {"object": {"key": key}}}]})), Invocation()
    )

    assert failures(answer) == ["m0"]
    (line,) = [json.loads(each) for each in raw.getvalue().decode().splitlines()]
    assert (line["level"], line["message_id"]) == ("ERROR", "m0")
    assert line["key"] == key.encode(errors="backslashreplace").decode()


def test_a_foreign_record_fails_its_message_and_the_good_records_beside_it_are_done(
    site: Site,
) -> None:
    (path,) = site.upload(piece(0, 10))

    answer = handler(sqs_event(s3_event("somebody/else.txt", path)), Invocation())

    assert failures(answer) == ["m0"]
    assert site.root().next_offset == 10
    (told,) = site.logged("ERROR")
    assert (told["message_id"], told["key"]) == ("m0", "somebody/else.txt")
