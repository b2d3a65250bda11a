"""From a spec to an offset, in one given manifest.

`StreamReader.locate` does the same in the manifest as it is now; a query has its own.
"""

from __future__ import annotations

from coldstream.manifest.root import Root
from coldstream.manifest.tree import Fetch, fragments_reaching
from coldstream.reader.fragments import Fragments
from coldstream.reader.locate import chunk_reaching, fragments_backwards, locate
from coldstream.reader.spec import Last, OffsetSpec, Timestamp


def offset_of(root: Root, spec: OffsetSpec, groups: Fetch, fragments: Fragments) -> int:
    """The offset that a spec means; the next offset if there is nothing yet.

    Raises:
        NotFoundError: an object of the manifest is gone.
        CorruptDataError: an object of the manifest is damaged.
        UnavailableError, PermissionDeniedError: from the adapters.
    """
    match spec:
        case Timestamp(value):
            for entry in fragments_reaching(root, value, groups):
                index = fragments.open(entry).index
                number = chunk_reaching(index, value, root.first_offset)
                if number is not None:
                    return max(index[number].chunk_id, root.first_offset)
            return root.next_offset
        case Last():
            for entry in fragments_backwards(root, groups):
                opened = fragments.open(entry)
                number = fragments.last_user_chunk(opened)
                if number is not None:
                    return max(opened.index[number].chunk_id, root.first_offset)
            return root.next_offset
        case _:
            return locate(root, spec)
