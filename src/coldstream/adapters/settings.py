"""What an operator has set, for every client alike: region, bucket, table; and what is wrong in it.

boto3 reads `AWS_DEFAULT_REGION` and the profile, the other SDKs and Lambda's runtime set
`AWS_REGION`. The region is decided here, once, so that no two clients of one process can differ.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from coldstream.errors import UnavailableError

#: When nothing says which region, S3 is asked here, as by its oldest clients.
DEFAULT_REGION = "us-east-1"

_ELSE = "AWS_REGION, or AWS_ENDPOINT_URL; nothing is lost by this"
#: Both want 3 characters; the oldest buckets of us-east-1 have up to 255, and other letters.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_TABLE = re.compile(
    r"[A-Za-z0-9_.-]{3,255}|arn:[a-z0-9-]+:dynamodb:[a-z0-9-]+:[0-9]+:table/[\w.-]+"
)


class MisconfiguredError(UnavailableError):
    """A setting names something that does not exist, so nothing is known of what was asked.

    It is no `NotFoundError`: a bucket that is not there does not mean that data was lost.

    Args:
        message: what is wrong, with the name that was set.
        remedy: what to set instead.
    """

    why = "configuration"
    may_retry = False

    def __init__(self, message: str, *, remedy: str = "correct the setting", **place: Any) -> None:
        super().__init__(message, remedy=remedy, **place)


def resolve_region(environment: Mapping[str, str] | None = None) -> str | None:
    """The region for all clients: AWS_REGION, AWS_DEFAULT_REGION, or the profile's; else None.

    Args:
        environment: variables to look at; those of the process by default.

    Raises:
        botocore.exceptions.BotoCoreError: there is no such profile.
    """
    env = os.environ if environment is None else environment
    named = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if named:
        return named
    import boto3

    region = boto3.session.Session(profile_name=env.get("AWS_PROFILE") or None).region_name
    return region or None


def check_bucket(bucket: str) -> str:
    """Return `bucket` if a bucket can be called so; obstore panics over some that cannot.

    Raises:
        MisconfiguredError: it cannot.
    """
    if bucket.startswith("s3://"):
        name = bucket.removeprefix("s3://").split("/")[0]
        raise MisconfiguredError(
            f"a bucket's name is wanted, not a URL: {bucket[:100]!r}",
            remedy=f"give the name alone: {name[:100]}",
        )
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise MisconfiguredError(
            f"no bucket can have this name: {bucket[:100]!r}", remedy="correct the bucket's name"
        )
    return bucket


def check_table(table: str) -> str:
    """Return `table` if a DynamoDB table can be called so, or if it is the ARN of one.

    Raises:
        MisconfiguredError: it cannot.
    """
    if not _TABLE.fullmatch(table):
        raise MisconfiguredError(
            f"no table can have this name: {table[:100]!r}", remedy="correct the table's name"
        )
    return table


def no_bucket(bucket: str, key: str | None = None) -> MisconfiguredError:
    """The error for a bucket that S3 does not know."""
    named = f" {bucket!r}" if bucket else ""
    return MisconfiguredError(
        f"there is no bucket{named}",
        remedy=f"correct the bucket's name, {_ELSE}",
        key=key,
    )


def no_table(table: str) -> MisconfiguredError:
    """The error for a table that DynamoDB does not know."""
    return MisconfiguredError(
        f"there is no DynamoDB table {table!r}",
        remedy=f"correct the table's name, {_ELSE}",
    )
