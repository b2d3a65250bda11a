from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from coldstream.errors import RefusedFragmentError
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import DataKey
from coldstream.plans.resolve import Listed, append_run, check_fragment, resolve_run
from tests.unit.remote import PREFIX, STREAM, piece

ONE = Ledger.of([(1, 0)])


def listed(
    first: int, following: int, *, epoch: int = 1, uid: int = 0, kind: str = "fragment"
) -> Listed:
    key = DataKey(STREAM, first, following, epoch, uid, "hole" if kind == "hole" else "fragment")
    return Listed(key, key.path(PREFIX), 1000)


def run(
    next_offset: int, ledger: Ledger, *given: Listed, without: tuple[str, ...] = ()
) -> list[Listed]:
    answers = {
        resolve_run(next_offset, ledger, order, without=without)
        for order in itertools.islice(itertools.permutations(given), 200)
    }
    assert len(answers) == 1, "the order of a listing must not matter"
    return list(answers.pop())


def test_nothing_listed_is_no_run() -> None:
    assert run(0, ONE) == []


def test_fragments_that_join_are_a_run() -> None:
    a, b, c = listed(0, 10), listed(10, 20), listed(20, 30)

    assert run(0, ONE, c, a, b) == [a, b, c]
    assert run(10, ONE, c, a, b) == [b, c]


def test_a_run_ends_at_a_gap() -> None:
    a, c = listed(0, 10), listed(20, 30)

    assert run(0, ONE, a, c) == [a]
    assert run(10, ONE, a, c) == []


def test_a_run_must_start_at_the_next_offset() -> None:
    assert run(5, ONE, listed(0, 10), listed(10, 20), listed(6, 10)) == []


def test_overlapping_fragments_give_the_run_that_reaches_furthest() -> None:
    short, long, after = listed(0, 10), listed(0, 15), listed(10, 30)

    assert run(0, ONE, short, long, after) == [short, after]
    assert run(0, ONE, short, long) == [long]


def test_a_detour_is_taken_where_the_longest_first_step_is_a_dead_end() -> None:
    dead_end, a, b, c = listed(0, 50), listed(0, 10), listed(10, 20), listed(20, 60)

    assert run(0, ONE, dead_end, a, b, c) == [a, b, c]


def test_among_runs_to_the_same_offset_the_one_with_fewest_fragments_wins() -> None:
    whole, halves = listed(0, 20), (listed(0, 10), listed(10, 20))

    assert run(0, ONE, whole, *halves) == [whole]


def test_among_equally_many_fragments_the_longer_last_one_wins_whatever_the_uids() -> None:
    a, b = listed(0, 10, uid=1), listed(0, 20, uid=9)
    c, d = listed(10, 30, uid=9), listed(20, 30, uid=1)

    assert run(0, ONE, a, b, c, d) == [a, c]


def test_among_uploads_of_one_range_the_smallest_uid_wins() -> None:
    uploads = [listed(0, 10, uid=uid) for uid in (5, 2, 9)]

    assert run(0, ONE, *uploads) == [uploads[1]]


def test_no_range_is_acceptable_under_two_epochs() -> None:
    both = Ledger.of([(1, 0), (2, 0)])
    assert run(0, both, listed(0, 10, epoch=1)) == []
    assert run(0, both, listed(0, 10, epoch=2), listed(0, 10)) == [listed(0, 10, epoch=2)]


def test_a_refused_fragment_is_left_out_and_another_upload_takes_its_place() -> None:
    bad, good, after = listed(0, 10, uid=1), listed(0, 10, uid=2), listed(10, 20)

    assert run(0, ONE, bad, good, after, without=(bad.path,)) == [good, after]
    assert run(0, ONE, bad, after, without=(bad.path,)) == []


def test_a_hole_is_no_part_of_a_run_of_fragments() -> None:
    assert run(0, ONE, listed(0, 10, kind="hole"), listed(10, 20)) == []


def test_fragments_of_an_epoch_that_never_claimed_take_no_part() -> None:
    assert run(0, ONE, listed(0, 10, epoch=2)) == []
    assert run(0, Ledger(), listed(0, 10)) == []


def test_an_older_epoch_below_the_floor_and_the_newer_one_above_it_are_one_run() -> None:
    ledger = Ledger.of([(5, 0), (6, 20)])
    old, late, new = listed(0, 20, epoch=5), listed(20, 30, epoch=5), listed(20, 25, epoch=6)

    assert run(0, ledger, old, late, new) == [old, new]


def test_a_fragment_that_straddles_a_higher_floor_takes_no_part() -> None:
    ledger = Ledger.of([(5, 0), (6, 20)])

    assert run(0, ledger, listed(0, 21, epoch=5)) == []


def test_the_greatest_offsets_are_resolved() -> None:
    last = listed(2**64 - 2, 2**64 - 1)

    assert run(2**64 - 2, ONE, last) == [last]


# One fragment against its key, its size, the ledger and its neighbour.


def refused(fragment_ledger: Ledger, last: LastChunk | None, **lies: int) -> RefusedFragmentError:
    made = piece(10, 20, epoch=5, floor=10, chunk_epochs=[4])
    path = made.path(PREFIX)
    trailer = replace(made.trailer, **lies)
    with pytest.raises(RefusedFragmentError) as caught:
        check_fragment(
            Listed(made.key, path, len(made.data)), trailer, ledger=fragment_ledger, last_chunk=last
        )
    error = caught.value
    assert (error.stream, error.offset, error.key) == (STREAM, 10, path)
    for part in (STREAM, "offset 10", path):
        assert part in str(error)
    return error


FIVE = Ledger.of([(5, 10)])


def test_a_good_fragment_becomes_an_entry() -> None:
    made = piece(10, 25, epoch=5, floor=10, chunk_epochs=[4], timestamps=[7, 3], uid=99)

    verified = check_fragment(
        Listed(made.key, made.path(PREFIX), len(made.data)),
        made.trailer,
        ledger=FIVE,
        last_chunk=LastChunk(5, 4),
    )
    root = append_run(Root(10, 10, epoch=5, ledger=FIVE), [verified])

    assert root.last_chunk == LastChunk(20, 4)
    assert root.entries[0].data_key(STREAM) == made.key
    assert (root.entries[0].min_timestamp, root.entries[0].max_timestamp) == (3, 7)
    assert (root.entries[0].size, root.entries[0].records) == (len(made.data), 15)


def test_a_fragment_with_another_floor_than_the_ledgers_is_refused() -> None:
    assert "floor 9" in str(refused(FIVE, None, floor=9))
    assert "floor 10" in str(refused(Ledger.of([(5, 11)]), None))
    assert "None" in str(refused(Ledger.of([(4, 10)]), None))


def test_a_fragment_whose_chunk_epochs_fall_behind_its_neighbour_is_refused() -> None:
    assert "fall from 5 to 4" in str(refused(FIVE, LastChunk(5, 5)))


@pytest.mark.parametrize("lie", [{"first_offset": 11}, {"next_offset": 21}, {"epoch": 6}])
def test_a_fragment_that_says_other_than_its_key_is_refused(lie: dict[str, int]) -> None:
    refused(FIVE, None, **lie)


def test_another_segment_or_sequence_is_no_reason_to_refuse() -> None:
    made = piece(10, 20, epoch=5, floor=10)
    trailer = replace(made.trailer, segment_offset=0, sequence=77, segment_position=12345)

    check_fragment(
        Listed(made.key, made.path(PREFIX), len(made.data)), trailer, ledger=FIVE, last_chunk=None
    )


def test_an_empty_run_gives_the_very_same_root() -> None:
    root = Root(0, 0)

    assert append_run(root, []) is root
