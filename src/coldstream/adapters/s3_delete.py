"""Deleting from S3 by boto3: only the functions that may delete are given one of these."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.aws_errors import FORBIDDEN, code_of
from coldstream.adapters.s3_errors import MISSING, translated
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.ports import MAX_DELETES

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef


# What XML 1.0 has no way to say, and the line ends that its readers turn into others.
_NOT_IN_XML = re.compile(r"[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: How often a key is asked for that S3 does not report as gone.
ATTEMPTS = 4


class S3Deleter:
    """The `Deleter` port on one bucket.

    Args:
        client: a boto3 S3 client with standard retries.
        bucket: name.
    """

    def __init__(self, *, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def delete(self, keys: Sequence[str]) -> list[str]:
        if len(keys) > MAX_DELETES:
            raise InternalError(f"{len(keys)} keys are more than {MAX_DELETES}")
        wanted = [*dict.fromkeys(keys)]
        gone: set[str] = set()
        refused: set[str] = set()
        trouble: ColdstreamError | None = None
        for _ in range(ATTEMPTS):
            left = [key for key in wanted if key not in gone and key not in refused]
            if not left:
                break
            # Deleting is idempotent, so after a lost answer all of `left` is simply asked again.
            try:
                answer = self._ask(left)
            except (ClientError, BotoCoreError) as exc:
                trouble = translated(exc, left[0], self._bucket)
                if not isinstance(trouble, UnavailableError):
                    break
                continue
            gone.update(row["Key"] for row in answer.get("Deleted", []) if row.get("Key") in left)
            for row in answer.get("Errors", []):
                key, code = row.get("Key", ""), row.get("Code", "")
                if code in MISSING:
                    gone.add(key)
                elif code in FORBIDDEN:
                    refused.add(key)
                    trouble = PermissionDeniedError(f"S3 refused a delete: {code}", key=key)
                else:
                    trouble = UnavailableError(f"S3 did not delete: {code}", key=key)
        if wanted and not gone:
            raise trouble or UnavailableError("S3 does not say that it deleted", key=wanted[0])
        return [key for key in wanted if key in gone]

    def _ask(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Ask once for `keys`: all in one request, but for keys that XML cannot say.

        A key may have characters that no XML has, and one of them would spoil the whole request.
        Such a key goes by a request of its own, where it stands in the URL.

        Raises:
            ClientError, BotoCoreError: to a part of the keys at least; nothing is known of any.
        """
        odd = [key for key in keys if _NOT_IN_XML.search(key)]
        deleted: list[dict[str, str]] = []
        errors: list[dict[str, str]] = []
        for key in odd:
            try:
                self._client.delete_object(Bucket=self._bucket, Key=key)
                deleted.append({"Key": key})
            except ClientError as exc:
                errors.append({"Key": key, "Code": code_of(exc)})
        plain: list[ObjectIdentifierTypeDef] = [
            {"Key": key} for key in keys if not _NOT_IN_XML.search(key)
        ]
        if not plain:
            return {"Deleted": deleted, "Errors": errors}
        answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": plain})
        return {
            "Deleted": [*deleted, *answer.get("Deleted", [])],
            "Errors": [*errors, *answer.get("Errors", [])],
        }
