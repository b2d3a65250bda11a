"""The object store on S3 by boto3: for the Lambdas, whose runtime brings boto3 along.

They read trailers and roots and write roots: small requests, for which this is fast enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.absence import telling_absence
from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.bodies import check_body
from coldstream.adapters.s3_errors import TAKEN, translated
from coldstream.adapters.s3_list import Lister
from coldstream.adapters.settings import MisconfiguredError
from coldstream.errors import (
    AlreadyExistsError,
    CorruptDataError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.fragment import Buffer
from coldstream.ports import ObjectInfo

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

WRITE_ID = "write-id"
_T = TypeVar("_T")


class BotoObjectStore:
    """The `ObjectStore` port on one bucket.

    Args:
        client: a boto3 S3 client with standard retries.
        bucket: name.
        put_attempts: how often a PUT without an answer is sent before it counts as unknown.
    """

    def __init__(self, *, client: S3Client, bucket: str, put_attempts: int = 4) -> None:
        self._client = client
        self._bucket = bucket
        self._put_attempts = put_attempts
        self._lister = Lister(client=client, bucket=bucket)

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        for _ in range(self._put_attempts):
            try:
                self._create(key, body, write_id, crc)
                return
            except (ClientError, BotoCoreError) as exc:
                if code_of(exc) in TAKEN:
                    writer = written_by(self._client, self._bucket, key)
                    if writer == write_id:
                        return
                    if writer is None:
                        continue  # a write that raced ours and failed: the key is free again
                    raise AlreadyExistsError("the key is taken by another write", key=key) from exc
                error = translated(exc, key)
                if isinstance(error, MisconfiguredError) or not isinstance(error, UnavailableError):
                    raise error from exc
                if written_by(self._client, self._bucket, key) == write_id:
                    return
        raise UnknownOutcomeError("the store gave no answer to a PUT", key=key)

    def _create(self, key: str, body: Buffer, write_id: str, crc: int | None) -> None:
        """Send one PUT."""
        check_body(key, body, crc)
        self._client.put_object(
            Bucket=self._bucket,
            Key=key,
            Body=bytes(body),
            IfNoneMatch="*",
            ChecksumAlgorithm="CRC32",
            Metadata={WRITE_ID: write_id},
        )

    def get(self, key: str, start: int, end: int) -> Buffer:
        data = self._read(key, f"bytes={start}-{end - 1}")
        if len(data) != end - start:
            raise CorruptDataError(
                f"bytes {start}-{end} were asked, the object gave {len(data)}", key=key
            )
        return data

    def get_all(self, key: str, *, limit: int) -> bytes:
        def read() -> bytes:
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            if found["ContentLength"] > limit:
                found["Body"].close()
                raise CorruptDataError(f"the object has more than {limit} bytes", key=key)
            return found["Body"].read()

        return telling_absence(self, key, lambda: _translating(read, key))

    def get_suffix(self, key: str, length: int) -> bytes:
        try:
            return self._read(key, f"bytes=-{length}")
        except CorruptDataError:
            return b""  # S3 satisfies no range of an empty object

    def _read(self, key: str, byte_range: str) -> bytes:
        def read() -> bytes:
            found = self._client.get_object(Bucket=self._bucket, Key=key, Range=byte_range)
            return found["Body"].read()

        return telling_absence(self, key, lambda: _translating(read, key))

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        return self._lister.level(prefix, start_after=start_after, limit=limit)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return self._lister.list(prefix, start_after=start_after, limit=limit)


def written_by(client: S3Client, bucket: str, key: str) -> str | None:
    """The write id of the object under `key`, "" if it has none; None if there is no object or no
    answer."""
    try:
        found = client.head_object(Bucket=bucket, Key=key)
    except (ClientError, BotoCoreError):
        return None
    return found["Metadata"].get(WRITE_ID, "")


def _translating(call: Callable[[], _T], key: str) -> _T:
    try:
        return call()
    except (ClientError, BotoCoreError) as exc:
        raise translated(exc, key) from exc
