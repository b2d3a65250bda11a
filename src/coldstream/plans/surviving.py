"""What several records say of one lost timeline, as one.

An attempt to claim that lost a conflict has left a quarantine record, too, and where the root is
damaged that named the one that landed, nobody says which that was. The attempt that landed was the
last one, so it had read the newest root. Whatever the roots before had is in the tree of that root,
in the timeline of the claim that came in between, or was retired. So that tree counts, and what
only the other records list stays named beside it: nothing is forgotten, whichever it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.errors import InvalidInputError
from coldstream.manifest.quarantine import ListedData, Timeline
from coldstream.names import RootKey, parse_metadata_key


def merged(versions: Sequence[Timeline], prefix: str) -> tuple[Timeline, tuple[ListedData, ...]]:
    """The timeline that counts, and what only the others list.

    Of several that were cut from the same root the lowest floor counts: it keeps most. The timeline
    names all that there was only if each of them does.

    Args:
        versions: of the timeline of one epoch, at least one.
        prefix: of all keys.
    """
    best = max(versions, key=lambda each: _rank(each, prefix))
    floor = min(each.floor for each in versions if each.root_key == best.root_key)
    named = {row.key for row in best.listed}
    others = {row.key: row for each in versions for row in each.listed if row.key not in named}
    complete = all(each.complete for each in versions)
    return replace(best, floor=floor, complete=complete), tuple(others.values())


def _rank(timeline: Timeline, prefix: str) -> tuple[int, int, int]:
    """Rises with the version of the root; a key that is none of a root is before all others."""
    version = -1
    try:
        key = parse_metadata_key(timeline.root_key, prefix)
        version = key.version if isinstance(key, RootKey) else -1
    except InvalidInputError:
        pass
    return version, timeline.next_offset, timeline.created_ms
