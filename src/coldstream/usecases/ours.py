"""Whether a stream's prefix holds anything of ours, among whatever else a bucket may hold."""

from __future__ import annotations

from typing import Protocol

from coldstream.errors import InvalidInputError
from coldstream.names import data_prefix, metadata_prefix, parse_data_key, parse_metadata_key
from coldstream.ports import ObjectStore

_PAGE = 1000
#: Pages of foreign keys that are looked through, for fragments and for metadata; with more of them
#: nobody can tell, and then it counts as ours.
_MAX_PAGES = 10


class ListedTier(Protocol):
    """Where to look."""

    @property
    def store(self) -> ObjectStore:
        """The bucket."""
        ...

    @property
    def prefix(self) -> str:
        """Of all keys."""
        ...


def first_of_ours(tier: ListedTier, stream: str) -> str | None:
    """Key of a fragment, a hole or an object of metadata of the stream; None if there is none.

    Objects with other keys say nothing of the stream: whoever may PUT can leave some anywhere.
    After ten pages of them, the last one's key.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    for under in (data_prefix(tier.prefix, stream), metadata_prefix(tier.prefix, stream)):
        after = ""
        for _ in range(_MAX_PAGES):
            page = tier.store.list(under, start_after=after, limit=_PAGE)
            for row in page:
                if is_ours(row.key, tier.prefix):
                    return row.key
            if len(page) < _PAGE:
                break
            after = page[-1].key
        else:
            return after
    return None


def holds_ours(tier: ListedTier, stream: str) -> bool:
    """Whether there is a fragment, a hole or an object of metadata of the stream.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    return first_of_ours(tier, stream) is not None


def is_ours(key: str, prefix: str) -> bool:
    """Whether a key is that of a fragment, a hole or an object of metadata."""
    for parse in (parse_data_key, parse_metadata_key):
        try:
            parse(key, prefix)
        except InvalidInputError:
            continue
        return True
    return False
