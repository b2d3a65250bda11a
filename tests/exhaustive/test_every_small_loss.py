"""What one small claim names of all that could be listed, and what it carries over of damage.

Scope of what is only listed: a fragment or hole over each range of 0..10, of each of three epochs,
beside a manifest with two fragments, a hole and a fragment, under each cut (1,320 claims).

Scope of damage: each bit of two fragments of three chunks that are cut in two (7,648 claims).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

from coldstream.errors import CorruptDataError
from coldstream.manifest.root import parse_root
from coldstream.names import DataKey
from coldstream.plans.claim import LocalChunk
from coldstream.usecases.quarantine import load_record
from tests.exhaustive.small_claims import (
    CLAIMER,
    OWNER,
    Item,
    Log,
    bytes_of,
    chain,
    content,
    expected,
    fragment_of,
    item_of,
    key_of,
    landed,
    remembering,
    take,
)
from tests.support.remote import PREFIX, STREAM


def check_damaged(*, times: bool) -> None:
    """Flip each bit of a fragment that is cut in two: its second chunk is the last common one.

    Args:
        times: those of the timestamps in the headers of the chunks that are kept; else all others.
    """
    for epochs in ((1, 1, 2), (1, 1, 1)):
        check_damaged_fragment(chain([2, 2, 2], epochs), times=times)


def check_damaged_fragment(past: Log, *, times: bool) -> None:
    small = remembering((Item(past),))
    log = (*past[:2], LocalChunk(4, 6, CLAIMER))
    remote = landed(small)
    path = key_of(small.items[0]).path(PREFIX)
    before, old = dict(remote.memory.objects), item_of(remote)
    size = len(bytes_of(past[0]))
    stamps = {8 + number * size + byte for number in (0, 1) for byte in range(8, 16)}
    for place, bit in product(range(len(before[path])), range(8)):
        if (place in stamps) != times:
            continue
        data = bytearray(before[path])
        data[place] ^= 1 << bit
        remote.items.items[STREAM] = old
        remote.memory.objects = before | {path: bytes(data)}
        said: list[object] = []
        try:
            take(remote, log)
        except CorruptDataError as exc:
            said.append((exc.stream, exc.key))
        if said:
            assert (said, item_of(remote)) == ([(STREAM, path)], old), place
            continue
        root = parse_root(remote.memory.objects[item_of(remote).root_key])
        chunks, _ = content(remote, root)
        assert chunks == {chunk: bytes_of(chunk) for chunk in past[:2]}, place


def test_of_a_damaged_fragment_only_whole_chunks_are_carried_over() -> None:
    check_damaged(times=False)


def test_of_a_damaged_fragment_no_other_timestamp_is_carried_over() -> None:
    check_damaged(times=True)


# What is in no tree.


def strays() -> Iterator[tuple[DataKey, bytes]]:
    for (first, next_offset), epoch in product(combinations(range(11), 2), (2, OWNER, CLAIMER)):
        chunk = chain([next_offset - first], [epoch], first)
        made = fragment_of(chunk, epoch, 0, 999)
        yield made.key, made.data
        yield replace(made.key, kind="hole"), b""


def check_named(*, below: bool) -> None:
    """Each stray alone, beside a manifest and a log that part at each of its chunks.

    Args:
        below: those that begin below the entry in which the cut lies; else all others.
    """
    past = chain([2, 1, 1, 2, 2], [1, 1, 1, 2, 2])
    items = (Item(past[:1]), Item(past[1:3]), Item(past[3:4], hole=True), Item(past[4:]))
    small = remembering(items)
    for keep in range(4):
        cut = past[keep].chunk_id
        log = past[:keep] + chain([10 - cut], [CLAIMER], cut)
        assert expected(small, log).offset == cut
        entry = next(item for item in items if item.next_offset > cut)
        for key, data in strays():
            if below != (key.first_offset < entry.first and key.next_offset > cut):
                continue
            remote = landed(small)
            path = key.path(PREFIX)
            remote.memory.put(path, data, write_id=path)
            take(remote, log)
            root = parse_root(remote.memory.objects[item_of(remote).root_key])
            record = load_record(remote.new_context(), STREAM, root.quarantine_key)
            over_hole = key.first_offset < 6 and key.next_offset > 4
            named = (
                key.kind == "fragment"
                and key.epoch == OWNER
                and key.next_offset > cut
                and (key.next_offset > 8 or over_hole)
            )
            (timeline,) = record.timelines
            listed = [row.key for row in timeline.listed]
            assert listed == ([path] if named else []), (keep, key)
            assert timeline.complete
            assert root.next_offset == cut


def test_of_what_is_only_listed_exactly_that_is_named_which_only_this_claim_shuts_out() -> None:
    check_named(below=False)


def test_what_begins_far_below_the_cut_and_reaches_over_it_is_named_too() -> None:
    check_named(below=True)
