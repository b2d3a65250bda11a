"""Tell a missing object from a forbidden one.

S3 answers 403, not 404, to a GET of a missing key unless the caller may list the whole bucket. Our
roles may list below their prefix only, so a 403 can mean either; one LIST of that very key tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coldstream.errors import NotFoundError, PermissionDeniedError
from coldstream.ports import ObjectStore

_T = TypeVar("_T")


def telling_absence(store: ObjectStore, key: str, read: Callable[[], _T]) -> _T:
    """Call `read`; where it is forbidden although nothing is under `key`, say so.

    Raises:
        NotFoundError: no such object.
        PermissionDeniedError: there is one, or even the LIST is forbidden.
    """
    try:
        return read()
    except PermissionDeniedError as exc:
        # Of all keys that begin with `key`, it comes first itself.
        if any(row.key == key for row in store.list(key, limit=1)):
            raise
        raise NotFoundError("no such object", key=key) from exc
