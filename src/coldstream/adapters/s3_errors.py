"""What boto3's errors of S3 mean, for all adapters that talk to S3 by boto3."""

from __future__ import annotations

from botocore.exceptions import ClientError

from coldstream.adapters.remedies import remedy_for
from coldstream.adapters.settings import no_bucket
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)

#: S3's own codes, by what the caller should do. `tests/unit/adapters` keeps the list honest.
TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
FORBIDDEN = frozenset(
    {
        "AccessDenied",
        "403",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)


def code_of(exc: Exception) -> str:
    """S3's own code of an error, "" if there was no answer."""
    return (
        str(exc.response.get("Error", {}).get("Code", "")) if isinstance(exc, ClientError) else ""
    )


def translated(exc: Exception, key: str, bucket: str = "") -> ColdstreamError:
    """The error of ours that a boto3 error means; `bucket` is the one that was asked, if known."""
    code = code_of(exc)
    if code == "NoSuchBucket" and isinstance(exc, ClientError):
        named = str(exc.response.get("Error", {}).get("BucketName", ""))
        return no_bucket(named or bucket, key)
    if code in MISSING:
        return NotFoundError("no such object", key=key)
    if code in FORBIDDEN:
        return PermissionDeniedError(
            f"S3 refused the request: {code}", key=key, remedy=remedy_for(code)
        )
    if code == "InvalidRange":
        return CorruptDataError("the object ends before the range that was asked", key=key)
    if code in TAKEN:
        return AlreadyExistsError("the key is taken by another write", key=key)
    return UnavailableError(
        f"S3 did not answer properly: {exc}", key=key, remedy=remedy_for(code, exc)
    )
