"""Reads while a claim cuts the history off that they are in: what was read of it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.errors import LostRangeError
from coldstream.plans.claim import KnownHistory, LocalChunk
from coldstream.plans.policy import PolicySet, Rule
from coldstream.reader import (
    First,
    Gap,
    GapReason,
    MemoryBudget,
    Offset,
    ReaderSettings,
    StreamReader,
    Timestamp,
)
from coldstream.remote.nodes import NodeCache
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.retention import retain
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, log_of, no_pause, piece

#: Twenty chunks of ten messages: history of epoch 1 up to 200, in fragments of two chunks.
OLD = [piece(n, n + 20) for n in range(0, 200, 20)]


class Site:
    """A stream, and a read of it whose every look at a fragment is a look at the manifest."""

    def __init__(self) -> None:
        self.remote = Remote().claimed(1)
        self.commit(*OLD)
        self.gaps: list[Gap] = []
        self.now = 0.0
        self.looks = 0
        self.at_look: dict[int, Callable[[], None]] = {}

    def commit(self, *fragments: Any) -> None:
        self.remote.upload(*fragments)
        commit_runs(self.remote.new_context(), STREAM, pause=no_pause)

    def reader(self) -> StreamReader:
        return StreamReader(
            self.remote.memory,
            self.remote.items,
            PREFIX,
            STREAM,
            settings=ReaderSettings(in_flight=1, refresh_seconds=1),
            budget=MemoryBudget(),
            nodes=NodeCache(),
            clock=self.look,
        )

    def look(self) -> float:
        """The read asks for the time before each fragment; then others may do something."""
        self.looks += 1
        self.at_look.pop(self.looks, lambda: None)()
        return self.now

    def truncate(self, cut: int, *, epoch: int = 2, end: int = 0, size: int = 10) -> None:
        """The new writer has what was there up to `cut`, and then up to `end` its own."""
        common = [c for c in log_of(*OLD).chunks if c.next_offset <= cut]
        fresh = LocalChunk(cut, cut + size, epoch)
        log = KnownHistory((*common, fresh))
        claim(self.remote.new_context(), STREAM, epoch, log=log, pause=no_pause)
        if end:
            self.commit(piece(cut, end, epoch=epoch, floor=cut, records_per_chunk=size))
        self.now += 10

    def retain(self, first: int) -> None:
        """All below `first` goes, as far as whole fragments lie there."""
        root = self.remote.root()
        kept = sum(e.size for e in root.entries if e.next_offset > first)
        rules = PolicySet((Rule("r", max_bytes=kept),))
        retain(self.remote.new_context(), STREAM, rules, now_ms=0, pause=no_pause)

    def drop_cut_off(self) -> None:
        """As if a person had dropped the lost timeline and `collect` had been there."""
        for fragment in OLD:
            live = {e.data_key(STREAM).path(PREFIX) for e in self.remote.root().entries}
            if fragment.path(PREFIX) not in live:
                del self.remote.memory.objects[fragment.path(PREFIX)]


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_was_read_of_a_history_that_was_cut_off_and_written_anew_is_told(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=300)

    seen += [each.offset for each in messages]

    assert site.gaps == [Gap(70, 100, GapReason.TRUNCATION)]
    assert seen == list(range(200)), "it goes on where it was, and ends where it was to end"


def test_without_a_handler_such_a_read_stops_and_names_the_offsets(site: Site) -> None:
    messages = site.reader().messages(First())
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=300)

    with pytest.raises(LostRangeError, match="offsets 70 to 99 were cut off") as caught:
        seen.extend(each.offset for each in messages)

    assert caught.value.offset == 70
    assert seen == list(range(100))


def test_it_is_told_when_the_objects_are_gone_too(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=300)
    site.now -= 10
    site.drop_cut_off()

    seen += [each.offset for each in messages]

    assert [gap for gap in site.gaps if gap.reason is not GapReason.TRUNCATION] == []
    (gap,) = site.gaps
    assert gap.first_offset == 70
    assert seen == list(range(200))


def test_a_read_that_has_not_come_to_the_cut_reads_the_new_history_and_misses_nothing(
    site: Site,
) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(35)]
    site.truncate(70, end=300)

    seen += [each.offset for each in messages]

    assert site.gaps == []
    assert seen == list(range(200))


def test_nobody_is_told_of_offsets_that_were_not_asked_for(site: Site) -> None:
    messages = site.reader().messages(Offset(85), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(5)]
    site.truncate(70, end=300)

    seen += [each.offset for each in messages]

    assert site.gaps == [Gap(85, 100, GapReason.TRUNCATION)]
    assert seen == list(range(85, 200))


def test_a_read_from_a_time_is_told_of_all_from_the_cut_on(site: Site) -> None:
    at = site.remote.root().entries[4].min_timestamp
    messages = site.reader().messages(Timestamp(at), on_gap=site.gaps.append)
    assert next(messages).offset == 80
    site.truncate(30, end=300)

    assert [each.offset for each in messages] == list(range(81, 200))
    assert site.gaps == [Gap(30, 100, GapReason.TRUNCATION)], "30 to 79 may be of that time, too"


def test_a_history_that_has_not_grown_back_is_one_gap_to_the_end(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=90)

    seen += [each.offset for each in messages]

    assert site.gaps == [Gap(70, 200, GapReason.TRUNCATION)]
    assert seen == list(range(100))


def test_messages_go_on_at_the_very_offset_though_the_new_chunks_lie_otherwise(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=280, size=70)

    seen += [each.offset for each in messages]

    assert seen == list(range(200))


def test_the_chunk_that_contains_the_offset_is_the_first_of_the_new_history(site: Site) -> None:
    chunks = site.reader().chunks(First(), on_gap=site.gaps.append)
    seen = [next(chunks).header.chunk_id for _ in range(10)]
    site.truncate(70, end=280, size=70)

    seen += [each.header.chunk_id for each in chunks]

    assert seen == [*range(0, 100, 10), 70, 140]
    assert site.gaps == [Gap(70, 100, GapReason.TRUNCATION)]


def test_each_cut_is_told_once(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=300)
    seen += [next(messages).offset for _ in range(10)]
    site.now += 10

    seen += [each.offset for each in messages]

    assert site.gaps == [Gap(70, 100, GapReason.TRUNCATION)]


def test_an_ordinary_claim_is_nobodys_gap(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(200, end=300)

    seen += [each.offset for each in messages]

    assert (site.gaps, seen) == ([], list(range(200)))


def test_a_claim_that_retention_has_taken_out_of_the_ledger_hides_no_cut(site: Site) -> None:
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(95)]
    site.truncate(70, end=110)
    root = site.remote.root()
    claim(
        site.remote.new_context(), STREAM, 3, pause=no_pause,
        log=KnownHistory((LocalChunk(60, 70, 1), LocalChunk(70, 80, 3))),
    )  # fmt: skip
    site.commit(piece(70, 90, epoch=3, floor=70), piece(90, 300, epoch=3, floor=70))
    site.retain(90)
    ledger = site.remote.root().ledger
    assert (root.ledger.epoch, [each.epoch for each in ledger.claims]) == (2, [3])

    seen += [each.offset for each in messages]

    assert site.remote.root().first_offset == 90
    assert site.gaps == [Gap(70, 100, GapReason.TRUNCATION)]
    assert seen == list(range(200))


def test_what_was_cut_off_ahead_of_a_read_is_told_when_the_read_comes_there(site: Site) -> None:
    """Found by the simulator: it was told at once, before what lay between had been read."""
    messages = site.reader().messages(First(), on_gap=site.gaps.append)
    seen = [next(messages).offset for _ in range(35)]
    told_at: list[int] = []
    site.truncate(150)

    for each in messages:
        seen.append(each.offset)
        told_at += [each.offset] * len(site.gaps)

    assert seen == list(range(150))
    assert told_at == [], "nothing was told before the last message"
    assert site.gaps == [Gap(150, 200, GapReason.TRUNCATION)]
