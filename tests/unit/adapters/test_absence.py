from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.errors import ColdstreamError, NotFoundError, PermissionDeniedError

KEY = "rabbitmq/stream/s/data/x.fragment"


class Forbidding:
    """S3 to a role that may list below its prefix only: 403 for whatever it cannot read."""

    def __init__(self, *keys: str) -> None:
        self._keys = sorted(keys)
        self.meta = Mock()

    def get_object(self, **arguments: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject")

    def list_objects_v2(self, *, Prefix: str, StartAfter: str, **_: Any) -> Any:  # noqa: N803
        import datetime

        rows = [k for k in self._keys if k.startswith(Prefix) and k > StartAfter]
        now = datetime.datetime.now(datetime.UTC)
        return {"Contents": [{"Key": k, "Size": 1, "LastModified": now} for k in rows]}


READS: list[Callable[[BotoObjectStore], Any]] = [
    lambda store: store.get(KEY, 0, 5),
    lambda store: store.get_all(KEY, limit=10),
    lambda store: store.get_suffix(KEY, 5),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("there", "error"),
    [
        ((), NotFoundError),
        ((KEY + "2", KEY[:-1]), NotFoundError),
        ((KEY, KEY[:-1] + "a"), PermissionDeniedError),
    ],
)
def test_a_forbidden_read_of_a_missing_object_says_that_it_is_missing(
    read: Callable[[BotoObjectStore], Any], there: tuple[str, ...], error: type[ColdstreamError]
) -> None:
    client: Any = Forbidding(*there)

    with pytest.raises(error):
        read(BotoObjectStore(client=client, bucket="b"))
