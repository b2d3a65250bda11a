"""LIST on a bucket that keeps what was deleted: S3 passes over it, and may find nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from coldstream.adapters.s3_list import Lister
from coldstream.errors import UnavailableError

NOW = datetime(2026, 11, 27, tzinfo=UTC)


class Versioned:
    """S3 that looks at three keys for one request, also at those that were deleted.

    Args:
        keys: in order; those with "deleted" in them are passed over.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = sorted(keys)
        self.meta = Mock()
        self.asked = 0

    def list_objects_v2(
        self,
        *,
        Prefix: str,  # noqa: N803
        StartAfter: str,  # noqa: N803
        MaxKeys: int,  # noqa: N803
        ContinuationToken: str = "",  # noqa: N803
        Delimiter: str = "",  # noqa: N803
        **_: Any,
    ) -> Any:
        self.asked += 1
        begin = ContinuationToken or StartAfter
        looked = [each for each in self._keys if each > begin and each.startswith(Prefix)][:3]
        found: list[str] = []
        last = ""
        for each in looked:
            if len(found) == MaxKeys:
                break
            last = each
            if "deleted" not in each:
                found.append(each)
        more = any(each > last and each.startswith(Prefix) for each in self._keys)
        rows = [{"Key": each, "Size": 1, "LastModified": NOW} for each in found]
        answer = {"Contents": rows, "IsTruncated": more}
        return {**answer, "NextContinuationToken": last} if more else answer


def lister(client: Any) -> Lister:
    return Lister(client=client, bucket="b")


DEAD = [f"p/{number:03d}.deleted" for number in range(100)]


def test_what_lies_behind_a_hundred_deleted_keys_is_found() -> None:
    found = lister(Versioned([*DEAD, "p/5", "p/6"])).list("p/")

    assert [each.key for each in found] == ["p/5", "p/6"]


def test_what_lies_between_deleted_keys_comes_once_and_in_order() -> None:
    live = [f"p/{number:03d}.live" for number in range(0, 100, 7)]
    wanted = sorted(live)

    assert [each.key for each in lister(Versioned([*DEAD, *live])).list("p/")] == wanted
    some = lister(Versioned([*DEAD, *live])).list("p/", start_after=wanted[2], limit=4)
    assert [each.key for each in some] == wanted[3:7]


def test_where_all_was_deleted_nothing_is_found_and_that_is_no_error() -> None:
    assert lister(Versioned(DEAD)).list("p/") == []
    assert lister(Versioned(DEAD)).level("p/") == []


@pytest.mark.parametrize("token", ["", "same"])
def test_an_answer_that_does_not_say_where_it_goes_on_is_refused(token: str) -> None:
    client = Mock()
    client.list_objects_v2.return_value = {
        "Contents": [],
        "IsTruncated": True,
        "NextContinuationToken": token,
    }

    with pytest.raises(UnavailableError, match="more follows, and not where"):
        lister(client).list("p/")
