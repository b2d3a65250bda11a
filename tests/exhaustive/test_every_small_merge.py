"""Every small run of pieces: which of them become one fragment, and out of which parts it is made.

Scope: every run of up to 4 pieces of 1 to 3 bytes with every set of gaps between them, into
fragments of 2 to 8 bytes, with an end that may grow or not, and every two runs of up to 2 (11,000
cases); each field by which neighbours are told apart one less, equal and one more; every
layout of up to 3 pieces of 1 to 12 bytes in parts of 1 to 24 (45,000); and trailers of every cut.

Why it is enough: the choice goes on from piece to piece, and a bin ends by size, by a gap, or at
the end of its run. Four pieces hold two bins with one piece left out before, between or behind.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product

import pytest

from coldstream.fragment import HEADER, IndexRecord, Trailer
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.plans import consolidate as module
from coldstream.plans.consolidate import (
    SmallFragment,
    choose,
    joins,
    layout,
    may_be_worth_it,
    merged_index,
    merged_trailer,
    small,
)
from coldstream_devkit.fragments import build_fragment
from tests.exhaustive.small_trees import masks

#: Pieces that an unfinished merge needs, here.
WAITS_FOR = 3


@lru_cache
def trailer() -> Trailer:
    return build_fragment(0, 1, epoch=2, chunk_epochs=[2]).trailer


def run_of(sizes: Sequence[int], gaps: Sequence[bool] = ()) -> list[SmallFragment]:
    """Neighbours of these sizes; behind a gap, another segment begins."""
    pieces: list[SmallFragment] = []
    segment = position = 0
    for number, size in enumerate(sizes):
        if number and gaps and gaps[number - 1]:
            segment, position = number, 0
        made = replace(
            trailer(),
            first_offset=number,
            next_offset=number + 1,
            segment_offset=segment,
            segment_position=position,
            data_size=size,
        )
        entry = Entry(number, number + 1, 0, 0, EntryKind.FRAGMENT, size, 1, 2, number)
        pieces.append(SmallFragment(entry, made))
        position += size
    return pieces


def numbers(chosen: Sequence[tuple[SmallFragment, ...]]) -> list[tuple[int, ...]]:
    return [tuple(each.entry.uid for each in pieces) for pieces in chosen]


def worth_it(
    sizes: Sequence[int], gaps: Sequence[bool], target: int, last_is_open: bool
) -> list[tuple[int, ...]]:
    """From each piece on, as many as join and fit; a merge at least doubles its largest piece.

    One that ends where the run does waits for several pieces, if the run may go on.
    """
    found: list[tuple[int, ...]] = []
    at = 0
    while at < len(sizes):
        fitting = [
            range(at, end)
            for end in range(at + 1, len(sizes) + 1)
            if end == at + 1 or (sum(sizes[at:end]) <= target and not any(gaps[at : end - 1]))
        ]
        bin_ = fitting[-1]
        taken = [sizes[n] for n in bin_]
        unfinished = last_is_open and bin_.stop == len(sizes)
        if sum(taken) < 2 * sorted(taken)[-1] or (unfinished and len(taken) < WAITS_FOR):
            at += 1
        else:
            found.append(tuple(bin_))
            at = bin_.stop
    return found


def test_of_every_run_those_pieces_become_one_that_fit_and_double_the_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MIN_PIECES", WAITS_FOR)
    for number in range(1, 5):
        for sizes, gaps in product(product((1, 2, 3), repeat=number), masks(number - 1)):
            run = run_of(sizes, gaps)
            for target, last in product(range(2, 9), (False, True)):
                chosen = choose([run], target_size=target, last_is_open=last)
                assert numbers(chosen) == worth_it(sizes, gaps, target, last)


def test_only_the_last_of_several_runs_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_PIECES", WAITS_FOR)
    some = [sizes for n in (1, 2) for sizes in product((1, 2), repeat=n)]
    for one, two, last in product(some, some, (False, True)):
        chosen = choose([run_of(one), run_of(two)], target_size=4, last_is_open=last)
        none = [False]
        expected = worth_it(one, none, 4, False) + worth_it(two, none, 4, last)
        assert numbers(chosen) == expected
    assert not choose([], target_size=4, last_is_open=True)


def test_a_merge_of_more_records_than_an_entry_can_say_ends_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 2)
    for number in range(1, 5):
        chosen = choose([run_of([1] * number)], target_size=9, last_is_open=False)
        assert numbers(chosen) == [(n, n + 1) for n in range(0, number - 1, 2)]


FIELDS = (
    "next_offset",
    "segment_offset",
    "segment_position",
    "data_size",
    "epoch",
    "floor",
    "last_chunk_epoch",
)


def test_neighbours_join_only_if_they_lie_side_by_side_in_one_segment_under_one_claim() -> None:
    before = replace(
        trailer(),
        first_offset=4,
        next_offset=5,
        segment_offset=3,
        segment_position=6,
        data_size=2,
        floor=1,
        last_chunk_epoch=2,
    )
    after = replace(before, first_offset=5, next_offset=6, segment_position=8, first_chunk_epoch=2)
    for steps in product((-1, 0, 1), repeat=len(FIELDS)):
        change = dict(zip(FIELDS, steps, strict=True))
        one = replace(
            before, **{name: int(getattr(before, name)) + step for name, step in change.items()}
        )
        side_by_side = change["segment_position"] + change["data_size"] == 0
        same = all(
            change[name] == 0 for name in ("next_offset", "segment_offset", "epoch", "floor")
        )
        assert joins(one, after) == (side_by_side and same and change["last_chunk_epoch"] <= 0)


def test_only_a_fragment_of_at_most_half_a_full_one_is_a_piece() -> None:
    for kind, size, target in product(EntryKind, range(8), range(8)):
        entry = Entry(0, 1, 0, 0, kind, size, 1, 1, 1)
        assert small(entry, target) == (kind is EntryKind.FRAGMENT and size + size <= target)


def test_a_look_at_a_tree_can_be_worth_it_if_its_fragments_are_many_and_below_half() -> None:
    for size, fragments, target in product(range(0, 40, 1), range(6, 12), (2, 4, 6, 8)):
        worth = may_be_worth_it(total_size=size, fragments=fragments, target_size=target)
        assert worth == (fragments >= 8 and size / fragments < target / 2)


def test_the_parts_of_every_layout_are_the_whole_object_and_only_the_last_is_short() -> None:
    for number in (1, 2, 3):
        for sizes, least in product(product(range(1, 13), repeat=number), range(1, 25)):
            objects = [bytes(HEADER) + bytes([65 + n]) * size for n, size in enumerate(sizes)]
            whole = bytes(HEADER) + b"".join(each[len(HEADER) :] for each in objects)
            parts = layout(sizes, min_part=least)
            bytes_of = [
                b"".join(objects[s.piece][s.start : s.end] for s in part.spans) for part in parts
            ]
            assert b"".join(bytes_of) == whole
            assert all(len(part) >= least for part in bytes_of[:-1])
            assert not parts[-1].copy, "the index and the trailer follow it"
            for part in parts:
                assert all(span.size == span.end - span.start > 0 for span in part.spans)
                if part.copy:
                    assert len(part.spans) == 1
            copied = [part.spans[0].piece for part in parts if part.copy]
            assert len(set(copied)) == len(copied)
            # What is read is what had to be: no more than fills a part up is taken from a piece
            # that is large enough to be copied for the rest.
            for piece, size in enumerate(sizes):
                if size + (len(HEADER) if piece == 0 else 0) >= 2 * least:
                    assert piece in copied
            if all(size >= least for size in sizes):
                assert copied == [*range(number)]
                assert all(not part.spans for part in parts if not part.copy)
                assert bytes_of[-1] == b""


def test_a_small_object_has_one_part_that_is_read_and_a_larger_one_is_laid_out_as_ever() -> None:
    for sizes, most in product(product(range(1, 9), repeat=3), range(25)):
        objects = [bytes(HEADER) + bytes([65 + n]) * size for n, size in enumerate(sizes)]
        parts = layout(sizes, min_part=4, read_whole=most)

        if sum(sizes) > most:
            assert parts == layout(sizes, min_part=4)
            continue
        (only,) = parts
        assert not only.copy
        assert b"".join(objects[s.piece][s.start : s.end] for s in only.spans) == bytes(
            HEADER
        ) + b"".join(each[len(HEADER) :] for each in objects)


def cuts(chunks: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut so many chunks into fragments."""
    for ends in masks(chunks - 1):
        borders = [0, *(n + 1 for n, cut in enumerate(ends) if cut), chunks]
        yield [*pairwise(borders)]


def test_a_fragment_of_pieces_has_the_index_and_the_trailer_of_one_that_was_never_cut() -> None:
    epochs = [1, 1, 2, 2]
    for chunks in range(1, 5):
        whole = build_fragment(
            0,
            chunks,
            epoch=2,
            chunk_epochs=epochs[:chunks],
            timestamps=[40, 30, 60, 50][:chunks],
            records_per_chunk=1,
            segment_offset=0,
        )
        for pieces in cuts(chunks):
            made = []
            position = 8
            for first, next_offset in pieces:
                made.append(
                    build_fragment(
                        first,
                        next_offset,
                        epoch=2,
                        chunk_epochs=epochs[first:next_offset],
                        timestamps=[40, 30, 60, 50][first:next_offset],
                        records_per_chunk=1,
                        segment_offset=0,
                        segment_position=position,
                    )
                )
                position += made[-1].trailer.data_size
            assert b"".join(each.chunks for each in made) == whole.chunks
            index = merged_index((each.trailer, records(each.index_section)) for each in made)
            assert index == whole.index_section[8:]
            merged = merged_trailer([each.trailer for each in made], index)
            assert merged == whole.trailer
            assert merged.data_crc == zlib.crc32(whole.chunks)


def records(section: bytes) -> Iterator[IndexRecord]:
    for at in range(8, len(section), 20):
        yield IndexRecord(
            int.from_bytes(section[at : at + 8], "big"),
            int.from_bytes(section[at + 8 : at + 16], "big", signed=True),
            int.from_bytes(section[at + 16 : at + 20], "big"),
        )
