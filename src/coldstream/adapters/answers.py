"""Whether an answer is AWS's: a proxy's page comes with the status 200, and so does nothing at all.

botocore reads such a page as an answer without any members. Of DynamoDB's that would say that there
is no item, of S3's that nothing is listed, or that an object has landed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError

#: S3's answers that are XML, by operation, and the element that each is.
_ELEMENTS = {
    "ListObjectsV2": b"ListBucketResult",
    "ListObjectVersions": b"ListVersionsResult",
    "DeleteObjects": b"DeleteResult",
    "CreateMultipartUpload": b"InitiateMultipartUploadResult",
    "UploadPartCopy": b"CopyPartResult",
    "CompleteMultipartUpload": b"CompleteMultipartUploadResult",
}
#: S3's answers that tell of an object by headers.
_OF_AN_OBJECT = frozenset({"PutObject", "UploadPart", "HeadObject", "GetObject"})
#: What stands before the element that an answer is: a declaration, and spaces by which S3 keeps a
#: connection open.
_FIRST_ELEMENT = re.compile(rb"\s*(?:<\?.*?\?>\s*)?<([A-Za-z0-9:]+)", re.DOTALL)


class ForeignAnswerError(BotoCoreError):
    """An answer that no service of AWS gives; it says nothing of what was asked."""

    fmt = "the answer is not AWS's, perhaps a proxy's: {said}"


def only_of_aws(client: Any) -> Any:
    """See that a boto3 client of any service takes no other answer for one of AWS; the client.

    Its requests raise ForeignAnswerError then, and nobody knows what has become of them.
    """
    for service, look in (
        ("dynamodb", _of_dynamodb),
        ("s3", _of_s3),
        ("sqs", _of_sqs),
    ):
        client.meta.events.register(f"before-parse.{service}", look)
    return client


def _of_dynamodb(response_dict: dict[str, Any], **_: Any) -> None:
    """A JSON object, "{}" for no item; DynamoDB, and who stands for it, says so in its headers."""
    if response_dict["status_code"] >= 300:
        return
    headers, body = response_dict["headers"], response_dict["body"]
    kind = str(headers.get("content-type", ""))
    if not kind.startswith("application/x-amz-json") and "x-amzn-requestid" not in headers:
        raise _foreign(headers, body)
    try:
        sound = isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise _foreign(headers, body)


def _of_s3(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] >= 300:
        return  # also what was an error within a 200: botocore has seen it by now
    headers, name = response_dict["headers"], operation_model.name
    if name in _OF_AN_OBJECT and not headers.get("etag"):
        raise _foreign(headers, b"")
    if name in _ELEMENTS:
        found = _FIRST_ELEMENT.match(response_dict["body"])
        if found is None or found[1].rpartition(b":")[2] not in (_ELEMENTS[name], b"Error"):
            raise _foreign(headers, response_dict["body"])


def _of_sqs(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] >= 300 or operation_model.name != "SendMessage":
        return
    body = response_dict["body"]
    if b"MessageId" not in body:  # in its XML as in its JSON
        raise _foreign(response_dict["headers"], body)


def _foreign(headers: Mapping[str, str], body: bytes) -> ForeignAnswerError:
    kind = str(headers.get("content-type") or "of no type")[:80]
    begin = f", {body[:40]!r}" if body else ""
    return ForeignAnswerError(said=f"status 200, {kind}{begin}")
