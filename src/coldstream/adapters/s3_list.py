"""LIST by boto3, for both S3 adapters: exact keys, whatever they are, and quick.

obstore takes keys for paths. It refuses those with empty, `.` or `..` parts or control characters,
and with them the whole page; and it cuts a slash off the end of a key, which then is another one.
boto3 asks S3 to encode keys as URLs, so that every key comes through. Of its time for a page nine
tenths go into a parser for all of AWS's answers; here the rows are read by one of their own.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from botocore.exceptions import BotoCoreError, ClientError

from coldstream.adapters.s3_errors import translated
from coldstream.errors import UnavailableError
from coldstream.ports import ObjectInfo

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_EVENT = "before-parse.s3.ListObjectsV2"
_ROWS = "Contents"


class Lister:
    """The methods `list` and `level` of the `ObjectStore` port on one bucket.

    Args:
        client: a boto3 S3 client with standard retries.
        bucket: name.
    """

    def __init__(self, *, client: S3Client, bucket: str) -> None:
        client.meta.events.register(_EVENT, _take_rows, unique_id="coldstream-rows")
        self._client = client
        self._bucket = bucket

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        """As the port says."""
        wanted = min(limit, 1000)
        names: list[str] = []
        more: dict[str, str] = {}
        while True:
            found = self._page(prefix, start_after, wanted - len(names), Delimiter="/", **more)
            names += [row["Key"] for row in found.get(_ROWS, [])]
            names += [each["Prefix"] for each in found.get("CommonPrefixes", [])]
            if len(names) >= wanted or not found.get("IsTruncated"):
                return sorted(names)
            more = _behind(found, more, prefix)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """As the port says."""
        wanted = min(limit, 1000)
        rows: list[ObjectInfo] = []
        more: dict[str, str] = {}
        while True:
            found = self._page(prefix, start_after, wanted - len(rows), **more)
            last = rows[-1].key if rows else start_after
            page = [_info(row) for row in found.get(_ROWS, [])]
            if page and page[0].key <= last:
                # Whoever goes on behind the last key would go round for ever.
                raise UnavailableError("S3 listed a key that it was told to pass", key=page[0].key)
            rows += page
            # S3 may give fewer rows than it was asked for although more follow; and none, where all
            # that it has passed over was deleted and is kept as a version.
            if len(rows) >= wanted or not found.get("IsTruncated"):
                return rows
            more = _behind(found, more, prefix)

    def _page(self, prefix: str, after: str, limit: int, **more: Any) -> Any:
        try:
            return self._client.list_objects_v2(
                Bucket=self._bucket, Prefix=prefix, StartAfter=after, MaxKeys=limit, **more
            )
        except (ClientError, BotoCoreError) as exc:
            raise translated(exc, prefix, self._bucket) from exc
        except UnicodeError as exc:  # no key of S3, which takes UTF-8 only
            raise UnavailableError("S3 listed a key that is no text", key=prefix) from exc


def _behind(found: Any, more: dict[str, str], prefix: str) -> dict[str, str]:
    """What a request for the page behind an answer has beside the one before.

    Raises:
        UnavailableError: the answer does not say, or it says where it was itself.
    """
    token = found.get("NextContinuationToken", "")
    if not token or token == more.get("ContinuationToken"):
        raise UnavailableError("S3 said that more follows, and not where", key=prefix)
    return {"ContinuationToken": token}


def _info(row: Any) -> ObjectInfo:
    return ObjectInfo(row["Key"], row["Size"], round(row["LastModified"].timestamp() * 1000))


def _take_rows(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Read the rows of an answer and leave the rest of it to botocore.

    The keys stay encoded: botocore decodes them together with all else that S3 has encoded. An
    answer that is not what it should be stays as it is, so that botocore says what is wrong.
    """
    if response_dict["status_code"] != 200:
        return
    try:
        # botocore would read it by the same library a moment later.
        answer = ElementTree.fromstring(response_dict["body"])  # noqa: S314
        space = answer.tag.removesuffix("ListBucketResult")
        found = answer.findall(f"{space}{_ROWS}")
        rows = [
            {
                "Key": _text(row, f"{space}Key"),
                "Size": int(_text(row, f"{space}Size")),
                "LastModified": datetime.fromisoformat(_text(row, f"{space}LastModified")),
            }
            for row in found
        ]
    except (ElementTree.ParseError, ValueError):
        return
    for row in found:
        answer.remove(row)
    response_dict["body"] = ElementTree.tostring(answer)
    customized_response_dict[_ROWS] = rows


def _text(row: ElementTree.Element, tag: str) -> str:
    text = row.findtext(tag)
    if not text:
        raise ValueError(f"a row without {tag}")
    return text
