"""Requests that show what credentials allow, against answers as AWS words them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from coldstream.adapters.rights import AwsRights
from coldstream.errors import ColdstreamError, PermissionDeniedError, UnavailableError
from coldstream.plans.heartbeats import Heartbeat

DATE = "Mon, 23 Nov 2026 12:00:00 GMT"
AT = 1_795_435_200.0


def refusal(code: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPHeaders": {"date": DATE}},
    }
    return ClientError(answer, "Any")


class Client:
    """A boto3 client of any service that answers as the test says."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.asked.append(arguments)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


def rights(answer: Any, now: float = AT) -> tuple[AwsRights, Client]:
    client = Client(answer)
    made: Any = AwsRights(
        session=None, dynamodb=client, sqs=client, table="t", prefix="rabbitmq/",  # type: ignore[arg-type]
        queue_url="http://q", now=lambda: now,
    )  # fmt: skip
    return made, client


@pytest.mark.parametrize(
    "answer",
    [
        {"ResponseMetadata": {"HTTPHeaders": {"date": DATE}}},
        refusal("InvalidSignatureException"),  # which is what a wrong clock brings
    ],
)
def test_the_clock_is_read_from_any_answer_also_from_a_refusal(answer: Any) -> None:
    ahead, uncertain = rights(answer, now=AT + 1000)[0].clock()

    assert ahead == pytest.approx(999.5)
    assert uncertain == pytest.approx(0.5)


@pytest.mark.parametrize(
    "answer",
    [
        {"ResponseMetadata": {"HTTPHeaders": {}}},
        {"ResponseMetadata": {"HTTPHeaders": {"date": "yesterday"}}},
        EndpointConnectionError(endpoint_url="http://nowhere"),
    ],
)
def test_an_answer_without_a_date_is_an_error_and_no_difference(answer: Any) -> None:
    with pytest.raises(UnavailableError):
        rights(answer)[0].clock()


def test_a_condition_that_does_not_hold_shows_the_right_to_beat() -> None:
    asks, client = rights(refusal("ConditionalCheckFailedException"))

    asks.may_beat("n")

    (asked,) = client.asked
    assert asked["ConditionExpression"] == "attribute_exists(#key) AND attribute_not_exists(#key)"
    assert asked["Item"]["stream"] == {"S": "#agents/rabbitmq/"}


def test_the_word_that_is_there_is_given_by_the_write_that_does_not_happen() -> None:
    """An agent has no right to read it."""
    numbers = dict.fromkeys(("at_ms", "interval_ms", "streams", "behind", "standing", "failing"), 0)
    item = {name: {"N": str(number)} for name, number in numbers.items()}
    refused = refusal("ConditionalCheckFailedException")
    refused.response["Item"] = {**item, "item": {"S": "n"}, "shared": {"N": "1"}}

    last = rights(refused)[0].may_beat("n")

    assert last == Heartbeat("n", 0, 0, 0, 0, 0, 0, shared=1)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("AccessDeniedException", PermissionDeniedError),
        ("AccessDenied", PermissionDeniedError),
        ("InternalFailure", UnavailableError),
    ],
)
def test_a_refusal_is_told_for_what_it_is(code: str, expected: type[ColdstreamError]) -> None:
    asks, _ = rights(refusal(code))

    with pytest.raises(expected):
        asks.may_ask()


def test_the_queue_is_sent_what_s3_itself_sends_to_try_it() -> None:
    asks, client = rights({})

    asks.may_ask()

    assert json.loads(client.asked[0]["MessageBody"])["Event"] == "s3:TestEvent"
