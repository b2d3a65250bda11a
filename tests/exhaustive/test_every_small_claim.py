"""Every small claim over a bucket in memory: what is kept, cut, named, fenced and done only once.

Scope of claims: chains of up to 3 chunks as in `small_claims` (fragments of one or two chunks, a
retired begin, a group, any range lost), of which the last fragment may be only uploaded yet, each
against all logs that share any number of chunks and go on with one of 1..3 records, and chains of
up to 2 against logs that go on with up to 3: 1,929 claims, each made twice and then by every lower
epoch; 3,179 more by the epoch that has claimed already. A claim cuts one entry in two at the most,
so three chunks have room for what is kept, cut in two and cut off.

Scope of fences: all ledgers of epochs 1..3 with floors 0..1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product

import pytest

from coldstream.errors import DivergedError, FencedError, LostRangeError
from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.plans.claim import claim as plan_claim
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.claim import Claimed
from coldstream.usecases.quarantine import load_record
from tests.exhaustive.small_claims import (
    CLAIMER,
    OWNER,
    Expected,
    Item,
    Log,
    Small,
    ask,
    bytes_of,
    chain,
    content,
    expected,
    fragment_of,
    fragments_of,
    item_of,
    key_of,
    landed,
    logs,
    remembering,
    take,
    with_hole,
)
from tests.support.remote import PREFIX, STREAM, Remote


def manifests(most: int) -> Iterator[tuple[Small, int, Log]]:
    """With how many chunks a log shares, and the chain."""
    for count in range(1, most + 1):
        for shared in range(count + 1):
            past = chain([2] * count, [1] * shared + [2] * (count - shared))
            for items in fragments_of(past):
                for retired in range(len(items)):
                    yield remembering(items, retired), shared, past
                    for grouped in range(max(2, retired + 1), len(items)):
                        yield remembering(items, retired, grouped), shared, past
            for begin, end in combinations(range(count + 1), 2):
                if end - begin < count:
                    for items in with_hole(past, begin, end):
                        yield remembering(items), shared, past


def behinds(small: Small) -> Iterator[int]:
    """How many of the last items may be only uploaded: a fragment, and a hole before it."""
    yield 0
    for number in (1, 2):
        kept = small.items[: len(small.items) - number]
        apart = len(kept) > max(small.retired, small.grouped) and not small.items[-1].hole
        if apart and any(not item.hole for item in kept[small.retired :]):
            if number == 1 and kept[-1].hole:
                continue  # a manifest does not end in a hole that nothing follows
            yield number
        if not kept or not kept[-1].hole:
            return


def reaching(small: Small, floor: int) -> list[Item]:
    return [item for item in small.live if item.next_offset > floor]


def check_claim(small: Small, log: Log, behind: int, take: Callable[..., Claimed] = take) -> None:
    remote = landed(small, behind)
    before, old = dict(remote.memory.objects), item_of(remote)
    wanted = expected(small, log)
    case = (small, log, behind, wanted)
    asked: list[int] = []
    try:
        done = take(remote, log, alone=lambda begin, end: asked.append(begin))
    except DivergedError:
        assert wanted.what == "diverged", case
        assert (item_of(remote), remote.memory.objects) == (old, before)
        return
    item = item_of(remote)
    root = parse_root(remote.memory.objects[item.root_key])
    assert (item.epoch, item.version) == (CLAIMER, old.version + 1), case
    assert bool(asked) == wanted.asked

    # What is kept: all below the cut, byte for byte, and nothing else.
    end = small.next_offset if wanted.what == "agree" else wanted.offset
    kept = [] if wanted.anew else [chunk for chunk in small.chunks if chunk.next_offset <= end]
    chunks, holes = content(remote, root)
    assert list(chunks) == kept, case
    assert all(data == bytes_of(chunk) for chunk, data in chunks.items()), case
    lost = [(i.first, min(i.next_offset, end)) for i in small.live if i.hole and i.first < end]
    assert holes == ([] if wanted.anew else lost), case
    assert (root.first_offset, root.next_offset) == (end if wanted.anew else small.first, end)
    assert root.ledger == Ledger.of([(OWNER, 0), (CLAIMER, end)]), case
    if wanted.what == "cut":
        assert root.last_chunk == wanted.last, case

    # Nothing is ever deleted or written over; what is cut off is told, and named.
    assert before.items() <= remote.memory.objects.items()
    if wanted.what == "agree":
        assert (done.truncated, root.quarantine_key) == (None, ""), case
    else:
        check_record(remote, small, behind, wanted, done, old, root)

    # Once is enough, and no lower epoch comes again.
    after = dict(remote.memory.objects)
    again = take(remote, log)
    assert (again.truncated, again.held, again.rooted) == (None, None, False)
    for epoch in range(1, CLAIMER):
        with pytest.raises(FencedError):
            take(remote, log, epoch)
    assert (item_of(remote), remote.memory.objects) == (item, after), case


def check_record(
    remote: Remote,
    small: Small,
    behind: int,
    wanted: Expected,
    done: Claimed,
    old: CatalogItem,
    root: Root,
) -> None:
    told = done.truncated
    assert told is not None
    floor = min(small.first, wanted.offset) if wanted.anew else wanted.offset
    gone = reaching(small, floor)
    assert (told.epoch, told.offset, told.anew) == (CLAIMER, wanted.offset, wanted.anew)
    assert (told.old_first_offset, told.old_next_offset) == (small.first, small.next_offset)
    assert told.fragments == len(gone)
    sizes = [len(fragment_of(item.chunks).data) for item in gone if not item.hole]
    assert told.bytes == sum(sizes)
    assert told.record_key == root.quarantine_key
    if all(item.hole for item in gone):
        assert not root.quarantine_key
        return
    (timeline,) = load_record(remote.new_context(), STREAM, root.quarantine_key).timelines
    assert (timeline.epoch, timeline.floor, timeline.next_offset, timeline.created_ms) == (
        CLAIMER,
        floor,
        small.next_offset,
        5,
    )
    assert (timeline.root_key, timeline.reason) == (old.root_key, told.reason)
    late = small.items[len(small.items) - behind :]
    named = [key_of(item).path(PREFIX) for item in late if item in gone]
    assert [row.key for row in timeline.listed] == named
    assert all(row.size == len(remote.memory.objects[row.key]) for row in timeline.listed)
    assert timeline.complete


def test_a_claim_keeps_what_is_common_names_what_it_cuts_and_is_made_once() -> None:
    for small, shared, past in manifests(3):
        for log in logs(past, shared, (1, 2, 3), (CLAIMER,), 1):
            for behind in behinds(small):
                check_claim(small, log, behind)


def test_a_claim_that_an_agent_asks_for_is_the_claim_that_it_would_make_itself() -> None:
    for small, shared, past in manifests(2):
        for log in logs(past, shared, (1, 2, 3), (CLAIMER,), 2):
            for behind in behinds(small):
                check_claim(small, log, behind, ask)


def test_what_a_claim_cuts_is_named_also_where_the_log_goes_on_for_long() -> None:
    for small, shared, past in manifests(2):
        for log in logs(past, shared, (1, 3), (CLAIMER,), 3):
            for behind in behinds(small):
                check_claim(small, log, behind)


def test_a_claim_that_others_must_make_changes_nothing() -> None:
    def others_have_more(begin: int, end: int) -> None:
        raise LostRangeError(f"others have more than {begin}..{end}", stream=STREAM)

    for small, shared, past in manifests(2):
        remote = landed(small)
        before, old = dict(remote.memory.objects), item_of(remote)
        for log in logs(past, shared, (1, 2, 3), (CLAIMER,), 2):
            if expected(small, log).asked:
                with pytest.raises(LostRangeError):
                    take(remote, log, alone=others_have_more)
                assert (item_of(remote), remote.memory.objects) == (old, before)


# The very epoch again, and lower ones.


def test_the_epoch_that_has_claimed_changes_nothing_and_says_what_hole_its_log_could_fill() -> None:
    for small, shared, past in manifests(3):
        remote = landed(small)
        before, old = dict(remote.memory.objects), item_of(remote)
        end = small.next_offset
        for log in logs(past, shared, (1, 2, 3), (CLAIMER,), 2):
            wanted = expected(small, log)
            below = [chunk for chunk in log if chunk.chunk_id < end]
            start = small.end_of_data
            above_data = small.first if wanted.anew else wanted.offset
            fills = wanted.what == "cut" and below[-1].next_offset == end and start <= above_data
            if wanted.what == "agree" or fills:
                held = take(remote, log, OWNER).held
                assert held == ((max(start, wanted.offset), end) if fills else None), (small, log)
            else:
                with pytest.raises(DivergedError):
                    take(remote, log, OWNER)
        assert (item_of(remote), remote.memory.objects) == (old, before)


def ledgers() -> Iterator[list[tuple[int, int]]]:
    for floors in product((None, 0, 1), repeat=3):
        yield [(epoch, floor) for epoch, floor in enumerate(floors, 1) if floor is not None]


def test_only_an_epoch_above_all_claims_claims_the_same_is_let_be_and_all_others_are_fenced() -> (
    None
):
    for claims, epoch in product(ledgers(), range(1, 5)):
        highest = max([0, *(each for each, _ in claims)])
        remote = Remote()
        remote.anchor(1)
        if claims:
            root = Root(1, 1, highest, ledger=Ledger.of(claims))
            publish(remote.context, load(remote.context, STREAM), root, claim=True)
        before, old = dict(remote.memory.objects), item_of(remote)
        if epoch < highest:
            with pytest.raises(FencedError):
                take(remote, (), epoch)
        else:
            take(remote, (), epoch)
        if epoch > highest:
            assert item_of(remote).ledger == Ledger.of([*claims, (epoch, 1)])
        else:
            assert (item_of(remote), remote.memory.objects) == (old, before)


def test_a_planned_claim_is_fenced_by_higher_claims_and_by_chunks_of_higher_epochs() -> None:
    lasts = [None, *(LastChunk(0, epoch) for epoch in range(5))]
    for claims, last, epoch, recorded in product(ledgers(), lasts, range(1, 5), (None, (), (2,))):
        highest = max([0, *(each for each, _ in claims)])
        root = Root(0, 1, highest, ledger=Ledger.of(claims), last_chunk=last)
        if epoch <= highest or (last is not None and last.epoch > epoch):
            with pytest.raises(FencedError):
                plan_claim(root, epoch, recorded=recorded)
            continue
        after = plan_claim(root, epoch, recorded=recorded)
        kept = root.ledger if recorded is None else root.ledger.compacted(recorded)
        pairs = [(each.epoch, each.floor) for each in kept.claims]
        assert after == replace(root, epoch=epoch, ledger=Ledger.of([*pairs, (epoch, 1)]))
