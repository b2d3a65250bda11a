"""Versions of objects in S3, and making them go for good: only the function `erase` is given one.

In a bucket that keeps no versions every object has the one version "null", which goes like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.aws_errors import FORBIDDEN
from coldstream.adapters.s3_errors import MISSING, translated
from coldstream.errors import (
    ColdstreamError,
    InternalError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.ports import MAX_DELETES, ObjectVersion, VersionPage

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: How often a version is asked for that S3 does not report as gone.
_ATTEMPTS = 4


class S3Versions:
    """The `VersionDeleter` port on one bucket.

    Args:
        client: a boto3 S3 client with standard retries.
        bucket: name.
    """

    def __init__(self, *, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def versions(
        self, prefix: str, *, after: tuple[str, str] = ("", ""), limit: int = 1000
    ) -> VersionPage:
        key, version = after
        asked = {"KeyMarker": key} if key else {}
        asked |= {"VersionIdMarker": version} if key and version else {}
        try:
            answer = self._client.list_object_versions(
                Bucket=self._bucket,
                Prefix=prefix,
                MaxKeys=min(limit, 1000),
                **asked,  # type: ignore[arg-type]  # of the stubs: any of the options
            )
        except (ClientError, BotoCoreError) as exc:
            raise translated(exc, prefix, self._bucket) from exc
        found = [*answer.get("Versions", []), *answer.get("DeleteMarkers", [])]
        rows = tuple(sorted((_row(each) for each in found), key=lambda row: row.key))
        following = None
        if answer.get("IsTruncated"):
            following = answer.get("NextKeyMarker", ""), answer.get("NextVersionIdMarker", "")
            if not following[0] or following[0] < key or following == after:
                raise UnavailableError("S3 lists versions without an end", key=prefix)
        return VersionPage(rows, following)

    def delete_versions(self, rows: Sequence[ObjectVersion]) -> list[ObjectVersion]:
        if len(rows) > MAX_DELETES:
            raise InternalError(f"{len(rows)} versions are more than {MAX_DELETES}")
        wanted = {(row.key, row.version): row for row in rows}
        gone: set[tuple[str, str]] = set()
        refused: set[tuple[str, str]] = set()
        trouble: ColdstreamError | None = None
        for _ in range(_ATTEMPTS):
            left = [name for name in wanted if name not in gone and name not in refused]
            if not left:
                break
            # Deleting a version is idempotent: after a lost answer all of `left` is asked again.
            try:
                answer: Any = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": key, "VersionId": each} for key, each in left]},
                )
            except (ClientError, BotoCoreError) as exc:
                trouble = translated(exc, left[0][0])
                if not isinstance(trouble, UnavailableError):
                    break
                continue
            for row in answer.get("Deleted", []):
                gone.add((row.get("Key", ""), row.get("VersionId", "")))
            for row in answer.get("Errors", []):
                name, code = (row.get("Key", ""), row.get("VersionId", "")), row.get("Code", "")
                if code in MISSING or code == "NoSuchVersion":
                    gone.add(name)
                elif code in FORBIDDEN:
                    refused.add(name)
                    trouble = PermissionDeniedError(f"S3 refused a delete: {code}", key=name[0])
                else:
                    trouble = UnavailableError(f"S3 did not delete: {code}", key=name[0])
        if wanted and gone.isdisjoint(wanted):
            key = next(iter(wanted))[0]
            raise trouble or UnavailableError("S3 does not say that it deleted", key=key)
        return [row for name, row in wanted.items() if name in gone]


def _row(row: Any) -> ObjectVersion:
    modified = round(row["LastModified"].timestamp() * 1000)
    return ObjectVersion(row["Key"], row["VersionId"], row.get("Size", 0), modified)
