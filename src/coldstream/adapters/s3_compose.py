"""Composing objects inside S3 by boto3: a multipart upload whose parts S3 copies by itself.

    CreateMultipartUpload (with the write id) -> UploadPartCopy | UploadPart ... -> Complete

Until Complete is sent nothing can have landed, so any failure aborts the upload. Complete is
conditional and its answer may be lost; the object under the key, read back, then says by its write
id whether it is ours. obstore, which the agent and the reader use, has no UploadPartCopy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.absence import telling_absence
from coldstream.adapters.aws_errors import code_of
from coldstream.adapters.parts import check_parts
from coldstream.adapters.s3_boto import WRITE_ID, BotoObjectStore, written_by
from coldstream.adapters.s3_errors import TAKEN, translated
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    CorruptDataError,
    InternalError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.ports import CopyPart, Part

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

_T = TypeVar("_T")
#: Codes of a Complete after which this upload cannot land any more, so a new one may be tried.
_START_AGAIN = TAKEN | {"NoSuchUpload"}
#: Codes that say that we have made a mistake.
_MALFORMED = frozenset({"EntityTooSmall", "InvalidPart", "InvalidPartOrder", "MalformedXML"})
#: How often each request, and the upload as a whole, is tried.
_ATTEMPTS = 4


class S3Composer:
    """The `Composer` port on one bucket.

    Args:
        client: a boto3 S3 client with standard retries.
        bucket: name.
    """

    def __init__(self, *, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        check_parts(parts)
        self._check_sources([part for part in parts if isinstance(part, CopyPart)])
        for _ in range(_ATTEMPTS):
            upload = self._trying(partial(self._create, key, write_id), key)
            try:
                done = [
                    self._trying(
                        partial(self._part, key, upload, number, part),
                        part.key if isinstance(part, CopyPart) else key,
                    )
                    for number, part in enumerate(parts, 1)
                ]
            except BaseException:
                self._abort(key, upload)
                raise
            if self._complete(key, upload, done, write_id):
                return
        raise UnknownOutcomeError("S3 refused to complete an upload again and again", key=key)

    def _check_sources(self, parts: Sequence[CopyPart]) -> None:
        """See, before anything is begun, that the sources hold what is to be copied.

        Raises:
            NotFoundError, CorruptDataError: one does not exist, or ends before its range does.
        """
        reader = BotoObjectStore(client=self._client, bucket=self._bucket)
        ends: dict[str, int] = {}
        for part in parts:
            ends[part.key] = max(part.end, ends.get(part.key, 0))
        for source, end in ends.items():
            head = partial(self._client.head_object, Bucket=self._bucket, Key=source)
            found = telling_absence(reader, source, partial(self._trying, head, source))
            size = found["ContentLength"]
            if size < end:
                raise CorruptDataError(f"the object ends at {size}, not at {end}", key=source)

    def _create(self, key: str, write_id: str) -> str:
        return self._client.create_multipart_upload(
            Bucket=self._bucket,
            Key=key,
            Metadata={WRITE_ID: write_id},
            # One CRC over the whole object, as a plain PUT has, and not one of the parts' CRCs.
            ChecksumAlgorithm="CRC32",
            ChecksumType="FULL_OBJECT",
        )["UploadId"]

    def _part(self, key: str, upload: str, number: int, part: Part) -> CompletedPartTypeDef:
        """Send one part. Sending it twice replaces it, so a lost answer does no harm."""
        if isinstance(part, CopyPart):
            found = self._client.upload_part_copy(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": part.key},
                CopySourceRange=f"bytes={part.start}-{part.end - 1}",
            )["CopyPartResult"]
            checksum, etag = found.get("ChecksumCRC32"), found["ETag"]
        else:
            sent = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=bytes(part.data),
                ChecksumAlgorithm="CRC32",
            )
            checksum, etag = sent.get("ChecksumCRC32"), sent["ETag"]
        done: CompletedPartTypeDef = {"PartNumber": number, "ETag": etag}
        if checksum:
            done["ChecksumCRC32"] = checksum
        return done

    def _complete(
        self, key: str, upload: str, done: list[CompletedPartTypeDef], write_id: str
    ) -> bool:
        """Make the object; False if this upload is over without one and a new one may be tried.

        Raises:
            AlreadyExistsError, PermissionDeniedError, InternalError: it did not land.
            UnknownOutcomeError: nobody can say.
        """
        for _ in range(_ATTEMPTS):
            try:
                self._client.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=key,
                    UploadId=upload,
                    MultipartUpload={"Parts": done},
                    ChecksumType="FULL_OBJECT",
                    IfNoneMatch="*",
                )
                return True
            except (ClientError, BotoCoreError) as exc:
                writer = written_by(self._client, self._bucket, key)
                if writer == write_id:
                    self._abort(key, upload)  # an earlier attempt's object: this upload may be open
                    return True
                code = code_of(exc)
                if code in _START_AGAIN:
                    self._abort(key, upload)
                    if writer is None:
                        return False  # a write that raced ours and failed, or the upload is gone
                    raise AlreadyExistsError("the key is taken by another write", key=key) from exc
                error = translated(exc, key)
                if code in _MALFORMED:
                    error = InternalError(f"S3 takes these parts for no object: {exc}", key=key)
                if not isinstance(error, UnavailableError):
                    self._abort(key, upload)
                    raise error from exc
        raise UnknownOutcomeError("the store gave no answer to the end of an upload", key=key)

    def _abort(self, key: str, upload: str) -> None:
        """Drop the parts. What this cannot drop, the bucket's lifecycle rule does."""
        abort = partial(
            self._client.abort_multipart_upload, Bucket=self._bucket, Key=key, UploadId=upload
        )
        with suppress(ColdstreamError):  # the failure that led here is the one to be told
            self._trying(abort, key)

    def _trying(self, call: Callable[[], _T], key: str) -> _T:
        """Call again after no answer, as often as allowed; what fails otherwise, fails."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return call()
            except (ClientError, BotoCoreError) as exc:
                error = translated(exc, key)
                if attempt == _ATTEMPTS or not isinstance(error, UnavailableError):
                    raise error from exc
        raise AssertionError("at least one attempt")
