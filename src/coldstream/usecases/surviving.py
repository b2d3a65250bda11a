"""What the quarantine records of a bucket say together, where nobody knows which one is current."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coldstream.errors import CorruptDataError, InvalidInputError, NotFoundError
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.quarantine import QuarantineRecord, Timeline
from coldstream.names import QuarantineKey, parse_data_key, parse_metadata_key, quarantine_prefix
from coldstream.plans.collect import refers
from coldstream.plans.surviving import merged
from coldstream.remote.context import Context
from coldstream.usecases.quarantine import load_cut_root, load_record


def surviving_record(context: Context, stream: str, ledger: Ledger | None) -> QuarantineRecord:
    """What all readable records of the bucket say together, where the newest root is damaged.

    A timeline counts if its claim may have landed, and if no record says that it was given up.

    Args:
        context: where.
        stream: directory name.
        ledger: of the item, or of the newest root that can be read; None if nobody knows it.

    Raises:
        InvalidInputError: they name more timelines than fit into one record.
        UnavailableError: the store did not answer.
    """
    known = QuarantineRecord()
    gone: set[int] = set()
    versions: dict[int, dict[Timeline, None]] = {}
    for record in _readable_records(context, stream):
        for given_up in record.dropped:
            same = [each for each in known.dropped if each.epoch == given_up.epoch]
            until = max([given_up.until_ms, *(each.until_ms for each in same)])
            known = known.without(given_up.epoch, given_up.floor, until)
            gone.add(given_up.epoch)
        for timeline in record.timelines:
            if ledger is None or _may_have_landed(ledger, timeline.epoch):
                versions.setdefault(timeline.epoch, {})[timeline] = None
    timelines = [
        _merged(context, stream, list(each))
        for epoch, each in sorted(versions.items())
        if epoch not in gone
    ]
    try:
        return QuarantineRecord.of(timelines, known.dropped)
    except InvalidInputError as exc:
        exc.located(stream=stream)
        raise


def _may_have_landed(ledger: Ledger, epoch: int) -> bool:
    """Whether a claim is in the ledger, or is older than all of it: retention takes those out."""
    return ledger.floor(epoch) is not None or any(
        epoch < claim.epoch for claim in ledger.claims[:1]
    )


def _merged(context: Context, stream: str, versions: Sequence[Timeline]) -> Timeline:
    """What records say of one claim, as one; what its tree has already is not listed, too."""
    best, others = merged(versions, context.prefix)
    if not others:
        return best
    try:
        root = load_cut_root(context, stream, best)
    except (CorruptDataError, NotFoundError):
        root = None  # whoever reads the timeline is told
    fetch = context.fetch(stream)

    def in_tree(path: str) -> bool:
        try:
            key = parse_data_key(path, context.prefix)
        except InvalidInputError:
            return False
        cut_off = key.stream == stream and key.next_offset > best.floor
        return root is not None and cut_off and refers(root, key, fetch)

    more = (row for row in others if not in_tree(row.key))
    return replace(best, listed=(*best.listed, *more))


def _readable_records(context: Context, stream: str) -> Iterator[QuarantineRecord]:
    for page in context.pages(quarantine_prefix(context.prefix, stream)):
        for row in page:
            try:
                if isinstance(parse_metadata_key(row.key, context.prefix), QuarantineKey):
                    yield load_record(context, stream, row.key)
            except (InvalidInputError, CorruptDataError, NotFoundError):
                continue
