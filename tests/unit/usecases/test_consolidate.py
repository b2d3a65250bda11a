"""A week of one small fragment a minute becomes a few full ones, and no reader notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import pytest

from coldstream.errors import NotFoundError
from coldstream.fragment import HEADER, TRAILER_SIZE, Buffer, parse_trailer
from coldstream.manifest.tree import leaves
from coldstream.names import data_prefix
from coldstream.ports import MIN_PART_BYTES, Composer, ObjectStore, Part
from coldstream.reader.spec import First
from coldstream.reader.stream import Message, StreamReader
from coldstream.remote.nodes import NodeCache
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.consolidate import consolidate
from coldstream.usecases.rebalance import rebalance
from coldstream_devkit.bucket import compare, listed
from tests.support.remote import PREFIX, STREAM, Remote, no_pause, piece

WEEK = 7 * 24 * 60
RECORDS = 10
MINUTE_MS = 60_000
M = 1024
TARGET = 64 * 2**20


def a_week(remote: Remote) -> None:
    """One fragment of 40 KB a minute, committed and grouped as they come."""
    position = 8
    for minute in range(WEEK):
        first = minute * RECORDS
        fragment = piece(
            first,
            first + RECORDS,
            body_size=4000,
            timestamps=[1_700_000_000_000 + minute * MINUTE_MS],
            segment_offset=0,
            segment_position=position,
        )
        position += fragment.trailer.data_size
        remote.upload(fragment)
        if minute % 500 == 499 or minute == WEEK - 1:
            commit_runs(remote.context, STREAM, pause=no_pause)
            rebalance(remote.context, STREAM, branching=M, pause=no_pause)


def small_pieces(count: int, body_size: int) -> tuple[Remote, int]:
    """A stream of neighbours with ten messages each, and where they end in their segment, bytes."""
    remote, position = Remote().claimed(), 8
    for number in range(count):
        fragment = piece(
            10 * number,
            10 * number + 10,
            body_size=body_size,
            segment_offset=0,
            segment_position=position,
        )
        position += fragment.trailer.data_size
        remote.upload(fragment)
    commit_runs(remote.context, STREAM, pause=no_pause)
    return remote, position


def reader(remote: Remote) -> StreamReader:
    return StreamReader(remote.memory, remote.items, PREFIX, STREAM, nodes=NodeCache())


@pytest.mark.parametrize("damaged", [0, 1, 9, 28, 29])
@pytest.mark.parametrize("lost", [False, True])
def test_the_neighbours_of_a_damaged_piece_are_joined_all_the_same(
    damaged: int, lost: bool
) -> None:
    remote, _ = small_pieces(30, 1000)
    (key,) = (each for each in remote.memory.objects if f"/{10 * damaged:020d}-" in each)
    if lost:
        del remote.memory.objects[key]
    else:
        data = bytearray(remote.memory.objects[key])
        data[len(HEADER) + 100] ^= 1
        remote.memory.objects[key] = bytes(data)

    done = consolidate(
        remote.context,
        remote.memory,
        STREAM,
        target_size=TARGET,
        branching=M,
        pause=no_pause,
        read_whole=TARGET,
    )

    (error,) = done.failed
    assert error.offset == 10 * damaged
    # What could still grow waits for eight pieces, and a merge takes two at least.
    before, behind = damaged, 29 - damaged
    assert done.pieces == (before if before >= 8 else before * (before > 1)) + (
        behind if behind >= 8 else 0
    )
    assert [leaf.first_offset for leaf in leaves(remote.root(), remote.context.fetch(STREAM))]


class Vanishing:
    """A store that has no data of one fragment any more once its trailer was read."""

    def __init__(self, store: ObjectStore, first_offset: int, part: int) -> None:
        self._store = store
        self._mark = f"/{first_offset:020d}-"
        self._parts = part  # GETs that are answered before

    def get(self, key: str, start: int, end: int) -> Buffer:
        if self._mark in key:
            if not self._parts:
                raise NotFoundError("no such object", key=key)
            self._parts -= 1
        return self._store.get(key, start, end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("part", [0, 1], ids=["its index", "its data"])
def test_a_piece_that_vanishes_while_it_is_read_is_named_and_keeps_nothing_small(part: int) -> None:
    remote, _ = small_pieces(30, 1000)
    store: Any = Vanishing(remote.memory, 150, part)

    done = consolidate(
        replace(remote.context, store=store),
        remote.memory,
        STREAM,
        target_size=TARGET,
        branching=M,
        pause=no_pause,
        read_whole=TARGET,
    )

    (error,) = done.failed
    assert (error.stream, error.offset) == (STREAM, 150)
    assert (done.merges, done.pieces) == (2, 29)


class Asked:
    """A composer that notes what it makes."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self.keys: list[str] = []

    def compose(self, key: str, parts: Sequence[Part], *, write_id: str) -> None:
        self.keys.append(key)
        self._composer.compose(key, parts, write_id=write_id)


def offsets(messages: Iterator[Message]) -> list[int]:
    """Of messages whose bodies say that they are the ones."""
    found = []
    for each in messages:
        assert bytes(each.body[8:16]) == each.offset.to_bytes(8, "big")
        found.append(each.offset)
    return found


def once() -> Callable[[], bool]:
    """Time for one new fragment."""
    answers = chain([True], iter(lambda: False, None))
    return lambda: next(answers)


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_small_enough_is_put_whole_and_the_rest_is_composed(whole: bool) -> None:
    remote, end = small_pieces(8, MIN_PART_BYTES // 10)
    asked = Asked(remote.memory)

    done = consolidate(
        remote.context,
        asked,
        STREAM,
        target_size=TARGET,
        branching=M,
        pause=no_pause,
        read_whole=end if whole else end // 2,
    )

    assert (done.merges, done.pieces, done.failed) == (1, 8, [])
    assert bool(asked.keys) != whole
    assert bool(done.copied) != whole
    assert offsets(reader(remote).messages(First())) == [*range(80)]


@pytest.mark.slow
def test_a_week_of_one_small_fragment_a_minute_ends_as_a_few_full_ones_unseen_by_readers() -> None:
    remote = Remote().claimed()
    a_week(remote)
    assert remote.root().fragments == WEEK
    everything = [*range(WEEK * RECORDS)]
    before = reader(remote).messages(First())  # goes on with this root when all is over
    begun = offsets(islice(before, 1))
    meanwhile = reader(remote).messages(First())
    seen: list[int] = []

    cursor: int | None = 0
    steps = merges = 0
    while cursor is not None:
        done = consolidate(
            remote.context,
            remote.memory,
            STREAM,
            target_size=TARGET,
            branching=M,
            pause=no_pause,
            cursor=cursor,
            time_left=once(),
        )
        assert not done.failed
        cursor = done.cursor
        steps, merges = steps + 1, merges + done.merges
        seen += offsets(islice(meanwhile, len(everything) // 10))

    # 1,670 of them fill 64 MiB: six full ones, and a seventh of the 60 that are left.
    root = remote.root()
    assert (root.fragments, merges, steps) == (7, 7, 7)
    context = remote.new_context()
    made = list(leaves(root, context.fetch(STREAM)))
    sizes = [
        parse_trailer(
            remote.memory.get_suffix(each.data_key(STREAM).path(PREFIX), TRAILER_SIZE)
        ).data_size
        for each in made
    ]
    assert all(TARGET - 2**17 < size <= TARGET for size in sizes[:-1])
    assert seen + offsets(meanwhile) == everything
    assert begun + offsets(before) == everything
    assert offsets(reader(remote).messages(First())) == everything

    again = consolidate(
        remote.context,
        remote.memory,
        STREAM,
        target_size=TARGET,
        branching=M,
        pause=no_pause,
    )
    assert (again.merges, again.commits) == (0, 0)  # written twice, never again and again

    for run in (1, 2):  # the grace time is nothing here
        collect(
            context, remote.memory, STREAM, grace_ms=0, run_ms=run, now_ms=run, held=lambda _: False
        )
    left = [row.key for row in listed(remote.memory, data_prefix(PREFIX, STREAM))]
    assert len(left) == 7
    loaded = load(remote.new_context(), STREAM)
    records = {row.key for row in listed(remote.memory, PREFIX) if row.key.endswith(".marks")}
    assert not compare(
        remote.memory,
        PREFIX,
        loaded.item,
        loaded.root,
        context.fetch(STREAM),
        accounted_for=records,
    )
    assert offsets(reader(remote).messages(First())) == everything
