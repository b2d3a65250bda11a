"""Which of several roots landed, as far as uploads tell.

Two agents may claim at once, each with a root of the same version. The item says which one landed.
Where the item is lost, a fragment whose trailer says a floor is a witness of the claim that set it:
nobody uploads under a claim before it has landed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from coldstream.manifest.root import Root
from coldstream.plans.reconcile import disputed
from coldstream.plans.resolve import Listed
from coldstream.remote.context import Context
from coldstream.usecases.rebuild_objects import floors

#: Fragments at either end of an epoch that are asked for its floor.
_ASKED = 8
#: Pages of LIST that are looked at: what was uploaded since a claim is seldom more.
_PAGES = 100


@dataclass(slots=True)
class _EpochEvidence:
    first: list[Listed] = field(default_factory=list)
    last: deque[Listed] = field(default_factory=lambda: deque(maxlen=_ASKED))


def uploaded_floors(context: Context, stream: str, roots: Sequence[Root]) -> Mapping[int, int]:
    """By epoch, the floor that uploads say; only of epochs about which the roots disagree.

    A floor that none of them has tells nothing: it is of a claim that a rebuild has forgotten, or
    it was made up. Where uploads say two floors that roots have, both claims have landed at
    some time, and nothing is told either. It costs nothing where the roots agree, as they nearly
    always do.

    Args:
        context: where.
        stream: directory name.
        roots: of one version.

    Raises:
        UnavailableError, PermissionDeniedError: from the store.
    """
    claims = disputed(roots)
    if not claims:
        return {}
    epochs: dict[int, _EpochEvidence] = {each: _EpochEvidence() for each in claims}
    listing = context.data_pages(stream, min(min(each) for each in claims.values()))
    for each in chain.from_iterable(islice(listing, _PAGES)):
        seen = epochs.get(each.data_key.epoch)
        if seen is not None and each.data_key.kind == "fragment":
            (seen.first if len(seen.first) < _ASKED else seen.last).append(each)
    asked = [each for seen in epochs.values() for each in (*seen.first, *seen.last)]
    said = floors(context, asked)
    told: dict[int, set[int]] = {}
    for each in asked:
        epoch, floor = each.data_key.epoch, said.get(each.path)
        if floor in claims[epoch]:
            told.setdefault(epoch, set()).add(floor)
    return {epoch: min(several) for epoch, several in told.items() if len(several) == 1}
