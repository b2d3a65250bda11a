from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from coldstream.errors import RefusedFragmentError
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.names import DataKey
from coldstream.plans.resolve import (
    Candidates,
    Listed,
    append_run,
    check_fragment,
    check_hole,
    resolve,
    resolve_run,
)
from tests.support.remote import PREFIX, STREAM, piece

ONE = Ledger.of([(1, 0)])


def listed(
    first: int, next_offset: int, *, epoch: int = 1, uid: int = 0, kind: str = "fragment"
) -> Listed:
    key = DataKey(STREAM, first, next_offset, epoch, uid, "hole" if kind == "hole" else "fragment")
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


# Holes.


def hole(first: int, next_offset: int, **more: int) -> Listed:
    return replace(listed(first, next_offset, kind="hole", **more), size=0)


def test_a_hole_joins_the_end_of_the_run_to_the_next_fragment() -> None:
    a, lost, b = listed(0, 10), hole(10, 30), listed(30, 40)

    assert run(0, ONE, a, lost, b) == [a, lost, b]
    assert run(10, ONE, a, lost, b) == [lost, b]
    assert run(20, ONE, a, lost, b) == []


def test_a_hole_that_nothing_follows_waits() -> None:
    a = listed(0, 10)

    assert run(0, ONE, a, hole(10, 30)) == [a]
    assert run(0, ONE, a, hole(10, 30), listed(40, 50)) == [a]


def test_history_5_a_fragment_that_begins_in_a_hole_keeps_the_hole_out() -> None:
    a, lost, behind = listed(100, 200), hole(100, 250), listed(250, 300)

    assert run(100, ONE, a, lost, behind) == [a]
    assert run(100, ONE, listed(150, 200), lost, behind) == []


def test_a_fragment_that_was_refused_keeps_no_hole_out() -> None:
    bad, lost, behind = listed(10, 20), hole(0, 30), listed(30, 40)

    assert run(0, ONE, bad, lost, behind) == []
    assert run(0, ONE, bad, lost, behind, without=(bad.path,)) == [lost, behind]


def test_a_fragment_that_the_ledger_refuses_keeps_no_hole_out() -> None:
    late, lost, behind = listed(10, 20, epoch=9), hole(0, 30), listed(30, 40)

    assert run(0, ONE, late, lost, behind) == [lost, behind]


def test_a_hole_that_lost_its_fragment_behind_is_not_taken() -> None:
    lost, bad, longer, behind = hole(0, 30), listed(30, 40), hole(0, 50), listed(50, 60)

    assert run(0, ONE, lost, bad, longer, behind) == [lost, bad]
    assert run(0, ONE, lost, bad, longer, behind, without=(bad.path,)) == [longer, behind]


def test_of_two_agents_holes_the_one_fits_behind_which_data_comes_first() -> None:
    shorter, longer = hole(10, 30, uid=9), hole(10, 50, uid=1)

    assert run(10, ONE, shorter, longer, listed(30, 60), listed(50, 60)) == [
        shorter,
        listed(30, 60),
    ]
    assert run(10, ONE, shorter, longer, listed(50, 60)) == [longer, listed(50, 60)]


def test_among_holes_over_one_range_the_smallest_uid_wins() -> None:
    holes = [hole(10, 30, uid=uid) for uid in (5, 2, 9)]

    assert run(10, ONE, *holes, listed(30, 40)) == [holes[1], listed(30, 40)]


def test_holes_that_join_lead_over_a_range_that_none_of_them_spans() -> None:
    a, b, behind = hole(0, 10), hole(10, 30), listed(30, 40)

    assert run(0, ONE, a, b, behind) == [a, b, behind]
    assert run(0, ONE, a, b, hole(0, 30), behind) == [hole(0, 30), behind]
    assert run(0, ONE, a, hole(10, 31), behind) == []


def test_data_goes_on_behind_a_hole_and_over_another_one() -> None:
    given = [hole(0, 10), listed(10, 20), listed(20, 30), hole(30, 31), listed(31, 40)]

    assert run(0, ONE, *given) == given


def test_a_hole_is_never_a_short_cut_over_data() -> None:
    a, b, c = listed(0, 10), listed(10, 20), listed(20, 30)

    assert run(0, ONE, hole(0, 20), hole(10, 20), a, b, c) == [a, b, c]


def test_a_hole_of_a_deposed_writer_takes_no_part() -> None:
    ledger = Ledger.of([(5, 0), (6, 20)])

    assert run(20, ledger, hole(20, 30, epoch=5), listed(30, 40, epoch=6)) == []
    assert run(10, ledger, hole(10, 30, epoch=5), listed(30, 40, epoch=6)) == []
    mine = hole(20, 30, epoch=6)
    assert run(20, ledger, mine, listed(30, 40, epoch=6)) == [mine, listed(30, 40, epoch=6)]


def test_a_fragment_that_straddles_the_begin_of_a_hole_does_not_stop_the_stream_for_ever() -> None:
    # Who begins at 20 does not even list it; so whoever lists it must decide in the same way.
    across, a, lost, behind = listed(15, 25), listed(10, 20), hole(20, 30), listed(30, 40)

    assert run(10, ONE, a, across, lost, behind) == [a, lost, behind]
    assert run(20, ONE, a, across, lost, behind) == [lost, behind]


def test_more_has_to_be_listed_only_where_a_hole_might_still_lead_to_data() -> None:
    a, lost, longer = listed(0, 10), hole(10, 30), hole(10, 90)

    def to(*given: Listed) -> int:
        return resolve(0, ONE, given).listed_to

    assert to(a) == 10
    assert to(a, lost, longer) == 90
    assert to(a, lost, longer, listed(50, 60)) == 10
    assert to(a, lost, longer, hole(90, 95)) == 95


def test_a_hole_waits_while_a_fragment_could_still_make_it_count() -> None:
    a, lost = listed(0, 10), hole(10, 30)

    assert resolve(0, ONE, [a, lost]).waiting
    assert resolve(0, ONE, [a, lost, listed(40, 50)]).waiting
    assert not resolve(0, ONE, [a]).waiting
    assert not resolve(0, ONE, [a, lost, listed(20, 30)]).waiting
    assert not resolve(0, ONE, [a, lost, listed(30, 40)]).waiting


def test_a_hole_becomes_an_entry_without_bytes_or_records_at_the_time_before_it() -> None:
    made = piece(0, 10, timestamps=[700])
    before = check_fragment(
        Listed(made.key, made.path(PREFIX), len(made.data)),
        made.trailer,
        ledger=ONE,
        last_chunk=None,
    )
    lost = check_hole(hole(10, 30, uid=3), timestamp=700)
    root = append_run(Root(0, 0, epoch=1, ledger=ONE), [before, lost])

    assert root.entries[1] == Entry(10, 30, 700, 700, EntryKind.HOLE, 0, 0, 1, 3)
    assert (root.next_offset, root.last_chunk) == (30, LastChunk(0, 1))


def test_a_hole_with_something_in_it_is_refused_by_name() -> None:
    full = listed(10, 30, kind="hole")

    with pytest.raises(RefusedFragmentError) as caught:
        check_hole(full, timestamp=0)

    assert (caught.value.stream, caught.value.offset, caught.value.key) == (STREAM, 10, full.path)


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


def test_nothing_is_settled_beyond_the_keys_that_have_been_seen() -> None:
    # What begins at 15, and reaches over 20, may be on the next page.
    candidates = Candidates(0, ONE)
    candidates.add(pieces := [listed(0, 10), listed(10, 20)])

    assert [candidates.settled(pieces, seen_to=to) for to in (9, 10, 19, 20)] == [0, 1, 1, 2]


def test_nothing_is_settled_under_a_candidate_that_goes_over_it() -> None:
    candidates = Candidates(0, ONE)
    pieces = [listed(0, 10), listed(10, 20), listed(20, 30)]
    candidates.add([*pieces, listed(10, 35), listed(5, 90)])  # nothing leads to 5

    assert candidates.settled(pieces, seen_to=100) == 1
    candidates.drop(listed(10, 35))
    assert candidates.settled(pieces, seen_to=100) == 3


def test_nothing_is_settled_at_a_hole_but_with_what_follows_it() -> None:
    candidates = Candidates(0, ONE)
    pieces = [listed(0, 10), listed(10, 20, kind="hole"), listed(20, 30)]
    candidates.add(pieces)

    assert [candidates.settled(pieces[:n], seen_to=100) for n in (1, 2, 3)] == [1, 1, 3]
