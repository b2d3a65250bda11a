"""What boto3's errors of S3 mean, for all adapters that talk to S3 by boto3."""

from __future__ import annotations

from botocore.exceptions import ClientError

from coldstream.adapters import aws_errors
from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.settings import no_bucket
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
)

#: S3's own codes, by what the caller should do. `tests/unit/adapters` keeps the list honest.
TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
MISSING = frozenset({"NoSuchKey", "404", "NotFound"})


def translated(exc: Exception, key: str, bucket: str = "") -> ColdstreamError:
    """The error of ours that a boto3 error means; `bucket` is the one that was asked, if known."""
    code = code_of(exc)
    if code == "NoSuchBucket" and isinstance(exc, ClientError):
        named = str(exc.response.get("Error", {}).get("BucketName", ""))
        return no_bucket(named or bucket, key)
    if code in MISSING:
        return NotFoundError("no such object", key=key)
    if code == "InvalidRange":
        return CorruptDataError("the object ends before the range that was asked", key=key)
    if code in TAKEN:
        return AlreadyExistsError("the key is taken by another write", key=key)
    return aws_errors.translated(exc, "S3").located(key=key)
