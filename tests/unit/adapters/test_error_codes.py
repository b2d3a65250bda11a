"""SDK errors are translated once, in the adapters; this lists the codes that we know."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
)
from moto import mock_aws
from obstore import exceptions as obstore_errors

from coldstream.adapters import aws_errors, dynamodb_errors, s3, s3_boto, s3_errors, stepfunctions
from coldstream.adapters.claim_function import LambdaClaimFunction
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.settings import MisconfiguredError
from coldstream.adapters.sqs import QueueCommitRequests
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import CatalogItem
from coldstream.plans.agent_requests import MAX_MESSAGE
from coldstream.ports import Unknown
from coldstream_devkit.suites.catalog_fixtures import next_commit
from tests.support import faults

NO_ANSWER: list[Exception] = [
    ReadTimeoutError(endpoint_url="x"),
    EndpointConnectionError(endpoint_url="x"),
    ConnectionClosedError(endpoint_url="x"),
    IncompleteReadError(actual_bytes=1, expected_bytes=2),
]


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "Operation")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("NoSuchKey", NotFoundError),
        ("404", NotFoundError),
        ("AccessDenied", PermissionDeniedError),
        ("403", PermissionDeniedError),
        ("InvalidAccessKeyId", PermissionDeniedError),
        ("SignatureDoesNotMatch", PermissionDeniedError),
        ("ExpiredToken", PermissionDeniedError),
        ("InvalidToken", PermissionDeniedError),
        ("PreconditionFailed", AlreadyExistsError),
        ("ConditionalRequestConflict", AlreadyExistsError),
        ("InvalidRange", CorruptDataError),
        ("SlowDown", UnavailableError),
        ("InternalError", UnavailableError),
        ("ServiceUnavailable", UnavailableError),
        ("RequestTimeout", UnavailableError),
        ("BadDigest", UnavailableError),
        ("NoSuchBucket", MisconfiguredError),
        ("", UnavailableError),
        ("SomethingNew", UnavailableError),
    ],
)
def test_each_code_of_s3_says_what_to_do(code: str, expected: type[ColdstreamError]) -> None:
    error = s3_boto.translated(client_error(code), "some/key")

    assert type(error) is expected
    assert error.key == "some/key"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("AccessDeniedException", PermissionDeniedError),
        ("UnrecognizedClientException", PermissionDeniedError),
        ("InvalidSignatureException", PermissionDeniedError),
        ("ExpiredTokenException", PermissionDeniedError),
        ("ResourceNotFoundException", NotFoundError),
        ("ThrottlingException", UnavailableError),
        ("ProvisionedThroughputExceededException", UnavailableError),
        ("RequestLimitExceeded", UnavailableError),
        ("InternalServerError", UnavailableError),
        ("SomethingNew", UnavailableError),
    ],
)
def test_each_code_of_dynamodb_says_what_to_do(code: str, expected: type[ColdstreamError]) -> None:
    assert type(dynamodb_errors.translated(client_error(code))) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("AccessDeniedException", PermissionDeniedError),
        ("UnrecognizedClientException", PermissionDeniedError),
        ("ExpiredTokenException", PermissionDeniedError),
        ("StateMachineDoesNotExist", NotFoundError),
        ("ExecutionDoesNotExist", NotFoundError),
        ("InvalidName", InvalidInputError),
        ("InvalidExecutionInput", InvalidInputError),
        ("InvalidArn", InternalError),
        ("ValidationException", InternalError),
        ("ExecutionLimitExceeded", UnavailableError),
        ("StateMachineDeleting", UnavailableError),
        ("ThrottlingException", UnavailableError),
        ("SomethingNew", UnavailableError),
    ],
)
def test_each_code_of_step_functions_says_what_to_do(
    code: str, expected: type[ColdstreamError]
) -> None:
    assert type(stepfunctions.translated(client_error(code), "rebalance")) is expected


@pytest.mark.parametrize("exc", NO_ANSWER, ids=lambda exc: type(exc).__name__)
def test_no_answer_is_unavailable(exc: Exception) -> None:
    assert type(s3_boto.translated(exc, "k")) is UnavailableError
    assert type(dynamodb_errors.translated(exc)) is UnavailableError
    assert type(stepfunctions.translated(exc, "rebalance")) is UnavailableError


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (FileNotFoundError("x"), NotFoundError),
        (obstore_errors.NotFoundError("x"), NotFoundError),
        (obstore_errors.PermissionDeniedError("x"), PermissionDeniedError),
        (obstore_errors.UnauthenticatedError("x"), PermissionDeniedError),
        (obstore_errors.AlreadyExistsError("x"), AlreadyExistsError),
        (obstore_errors.PreconditionError("x"), AlreadyExistsError),
        (obstore_errors.GenericError("x"), UnavailableError),
        (obstore_errors.JoinError("x"), UnavailableError),
        (OSError("x"), UnavailableError),
    ],
)
def test_each_error_of_obstore_says_what_to_do(
    exc: Exception, expected: type[ColdstreamError]
) -> None:
    error = s3._translated(exc, "some/key")

    assert type(error) is expected
    assert error.key == "some/key"


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("ExpiredToken", "renew the credentials"),
        ("ExpiredTokenException", "renew the credentials"),
        ("InvalidAccessKeyId", "access key"),
        ("InvalidClientTokenId", "access key"),
        ("UnrecognizedClientException", "access key"),
        ("SignatureDoesNotMatch", "clock"),
        ("InvalidSignatureException", "clock"),
        ("RequestTimeTooSkewed", "clock"),
        ("SlowDown", "fewer requests"),
        ("ThrottlingException", "fewer requests"),
    ],
)
def test_what_to_do_about_a_code_that_is_no_missing_right_is_said_by_every_service(
    code: str, word: str
) -> None:
    error = client_error(code)
    of_obstore = obstore_errors.GenericError(f"<Error><Code>{code}</Code></Error>")

    for said in (
        s3_boto.translated(error, "k"),
        s3._translated(of_obstore, "k"),
        dynamodb_errors.translated(error),
        aws_errors.translated(error, "SQS"),
    ):
        assert word in (said.remedy or "")
        assert code in str(said)
    assert s3_boto.translated(client_error("AccessDenied"), "k").remedy is None


# What moto cannot be brought to do: answers of the real services, given in their stead.


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield lambda service: boto3.client(service, region_name="us-east-1")


def test_the_suffix_of_an_empty_object_is_empty_although_s3_says_invalid_range(
    aws: Callable[[str], Any],
) -> None:
    client = aws("s3")
    faults.answer_error(client, "GetObject", 416, "InvalidRange")

    assert BotoObjectStore(client=client, bucket="b").get_suffix("k", 156) == b""


@pytest.mark.parametrize("code", ["AccessDenied", "403"])
def test_a_put_that_is_forbidden_is_tried_once(aws: Callable[[str], Any], code: str) -> None:
    client = aws("s3")
    faults.answer_error(client, "PutObject", 403, code, count=1)

    with pytest.raises(PermissionDeniedError):
        BotoObjectStore(client=client, bucket="b").put("k", b"", write_id="w")


def commit_against(client: Any, code: str, status: int = 400) -> Any:
    faults.answer_error(client, "UpdateItem", status, code)
    item = CatalogItem("__s_1", "t")
    return DynamoCatalog(client=client, table="t", prefix="p/").commit(next_commit(item, uid=1))


@pytest.mark.parametrize(
    "code", ["ThrottlingException", "InternalServerError", "ServiceUnavailable", "SomethingNew"]
)
def test_a_commit_that_ends_in_an_outage_is_unknown(aws: Callable[[str], Any], code: str) -> None:
    assert commit_against(aws("dynamodb"), code) == Unknown(None)


def test_a_commit_that_is_forbidden_says_so(aws: Callable[[str], Any]) -> None:
    with pytest.raises(PermissionDeniedError):
        commit_against(aws("dynamodb"), "AccessDeniedException")


@pytest.mark.parametrize(
    ("code", "expected"),
    [("AccessDenied", PermissionDeniedError), ("ServiceUnavailable", UnavailableError)],
)
def test_a_request_for_a_commit_that_cannot_be_sent_says_why_and_for_which_stream(
    aws: Callable[[str], Any], code: str, expected: type[ColdstreamError]
) -> None:
    client = aws("sqs")
    faults.answer_error(client, "SendMessage", 400, code)

    with pytest.raises(expected) as caught:
        QueueCommitRequests(client=client, queue_url="https://q").ask("__s_1")

    assert caught.value.stream == "__s_1"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("AccessDeniedException", PermissionDeniedError), ("ServiceException", UnavailableError),
     ("TooManyRequestsException", UnavailableError),
     ("ResourceNotFoundException", MisconfiguredError)],
)  # fmt: skip
def test_a_function_that_cannot_be_invoked_says_why(
    aws: Callable[[str], Any], code: str, expected: type[ColdstreamError]
) -> None:
    client = aws("lambda")
    faults.answer_error(client, "Invoke", 400, code)

    with pytest.raises(expected):
        LambdaClaimFunction(client=client, name="claim").invoke(b"{}")


class AnsweringLambda:
    """A client whose function has answered."""

    def __init__(self, body: bytes, **more: str) -> None:
        self._body, self._more = body, more

    def invoke(self, **_: object) -> dict[str, Any]:
        return {"Payload": io.BytesIO(self._body), **self._more}


def test_a_function_that_failed_gave_no_answer() -> None:
    client: Any = AnsweringLambda(b'{"errorMessage": "timed out"}', FunctionError="Unhandled")

    with pytest.raises(UnavailableError, match="timed out"):
        LambdaClaimFunction(client=client, name="claim").invoke(b"{}")


def test_an_answer_that_is_too_large_is_none() -> None:
    client: Any = AnsweringLambda(b"x" * (MAX_MESSAGE + 1))

    with pytest.raises(UnavailableError):
        LambdaClaimFunction(client=client, name="claim").invoke(b"{}")


def test_a_request_that_is_too_large_is_not_sent() -> None:
    client: Any = AnsweringLambda(b"{}")

    with pytest.raises(InvalidInputError):
        LambdaClaimFunction(client=client, name="claim").invoke(b"x" * (MAX_MESSAGE + 1))


def test_a_bucket_that_an_answer_does_not_name_is_named_as_it_was_asked_for() -> None:
    missing = ClientError({"Error": {"Code": "NoSuchBucket"}}, "ListObjectsV2")
    assert "no bucket 'mine'" in str(s3_errors.translated(missing, "p/", "mine"))
    named: Any = {"Error": {"Code": "NoSuchBucket", "BucketName": "theirs"}}
    assert "'theirs'" in str(s3_errors.translated(ClientError(named, "List"), "p/", "mine"))
