"""Every small bucket behind a manifest, committed: the manifest is the run of the rules.

Scope: offsets 0..3, each of the six ranges without a fragment, with a good one or with one whose
trailer contradicts itself, and no hole or one over each range, empty or not (9,477 buckets), and
all sets of good fragments with all sets of holes (3,648); with room for all in one commit, or for
one object. Each fragment is one chunk, so that nothing can be taken of it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain as joined
from itertools import combinations, islice, product

from coldstream.manifest.catalog import CatalogItem
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root, parse_root
from coldstream.names import DataKey
from coldstream.plans.resolve import Listed
from coldstream.ports import Landed
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.commit_runs import CommitReport, commit_runs
from tests.exhaustive.small_claims import chain, fragment_of
from tests.support.naive_run import best_run, end_of, waits
from tests.support.remote import PREFIX, STREAM, Remote, no_pause
from tests.support.slow import in_part_and_in_full

SPANS = list(combinations(range(4), 2))
CLAIMS = [(1, 0)]
Objects = Sequence[tuple[DataKey, bytes]]


def fragment(first: int, next_offset: int, *, good: bool) -> tuple[DataKey, bytes]:
    made = fragment_of(chain([next_offset - first], [1], first), 1, 0, first * 10 + next_offset)
    return made.key, made.data if good else made.lying(segment_offset=first + 1).data


def hole(first: int, next_offset: int, *, empty: bool = True) -> tuple[DataKey, bytes]:
    return DataKey(STREAM, first, next_offset, 1, 7, "hole"), b"" if empty else b"x"


def buckets() -> Iterator[tuple[Objects, set[DataKey]]]:
    """Objects, and the keys of those that must be refused."""
    one_hole = [[], *([hole(*span, empty=empty)] for span in SPANS for empty in (True, False))]
    for states in product((None, True, False), repeat=len(SPANS)):
        found = [
            fragment(*span, good=state)
            for span, state in zip(SPANS, states, strict=True)
            if state is not None
        ]
        bad = {key for (key, _), state in zip(found, filter_none(states), strict=True) if not state}
        for holes in one_hole:
            yield [*found, *holes], bad | {key for key, data in holes if data}


def filter_none(states: Sequence[bool | None]) -> list[bool]:
    return [state for state in states if state is not None]


def with_holes() -> Iterator[Objects]:
    spans = list(joined.from_iterable(combinations(SPANS, n) for n in range(2, len(SPANS) + 1)))
    for good in joined.from_iterable(combinations(SPANS, n) for n in range(len(SPANS) + 1)):
        for lost in spans:
            yield [*(fragment(*s, good=True) for s in good), *(hole(*s) for s in lost)]


class Site:
    """One bucket and table that begin anew again and again: claimed at 0, with these objects."""

    def __init__(self) -> None:
        self.remote = Remote()
        self.remote.anchor()
        root = Root(0, 0, 1, ledger=Ledger.of(CLAIMS))
        outcome = publish(self.remote.context, load(self.remote.context, STREAM), root, claim=True)
        assert isinstance(outcome, Landed)
        self.objects = dict(self.remote.memory.objects)
        self.item: CatalogItem = self.remote.items.items[STREAM]

    def commit(self, objects: Objects, limit: int) -> CommitReport:
        self.remote.items.items[STREAM] = self.item
        self.remote.memory.objects = self.objects | {k.path(PREFIX): data for k, data in objects}
        return commit_runs(self.remote.context, STREAM, pause=no_pause, limit=limit)


def naive_commit(
    listed: Sequence[Listed], bad: set[DataKey], limit: int
) -> tuple[Sequence[Listed], set[str]]:
    """The run, looked through from its begin: what fails is left out and it is resolved again.

    Where the limit is reached, what was looked at is committed, and the next run begins behind it.
    What is never in a run is never looked at, and keeps holes out by its key alone.
    """
    refused: set[str] = set()
    done: list[Listed] = []
    while True:
        run = best_run(end_of(done, 0), CLAIMS, listed, refused)
        size = limit
        while size < len(run) and run[size - 1].data_key.kind == "hole":
            size += 1  # with the fragment that follows it
        found = next((each for each in run[:size] if each.data_key in bad), None)
        if found is not None:
            refused.add(found.path)
        elif run:
            done += run[:size]
        else:
            return done, refused


def check(site: Site, objects: Objects, bad: set[DataKey]) -> None:
    listed = [Listed(key, key.path(PREFIX), len(data)) for key, data in objects]
    for limit in (500, 1):
        run, refused = naive_commit(listed, bad, limit)
        report = site.commit(objects, limit)
        item = site.remote.items.items[STREAM]
        root = parse_root(site.remote.memory.objects[item.root_key])
        case = (objects, limit)
        assert [entry.data_key(STREAM) for entry in root.entries] == [e.data_key for e in run], case
        assert (root.first_offset, root.next_offset) == (0, end_of(run, 0))
        assert root.ledger == Ledger.of(CLAIMS)
        data = [each for each in run if each.data_key.kind == "fragment"]
        last = LastChunk(data[-1].data_key.first_offset, 1) if data else None
        assert root.last_chunk == last
        holes = [(e.data_key.first_offset, e.data_key.next_offset) for e in run if e not in data]
        assert (report.fragments, list(report.holes)) == (len(data), holes), case
        assert report.bytes == sum(each.size for each in run)
        assert (report.next_offset, report.version) == (root.next_offset, item.version)
        assert report.root.entries == root.entries
        assert (report.conflicts, report.more) == (0, False)
        assert report.commits == item.version - site.item.version
        if limit == 500:
            assert report.commits <= 1 + len(holes)
        said = {each.key for each in report.refused}
        # A good one is told of only if it reaches over an end and no part of it can follow.
        assert said <= {each.path for each in listed}
        joins = {0, *(each.data_key.next_offset for each in run)}
        for each in listed:
            if each.path in said and each.data_key not in bad:
                span = range(each.data_key.first_offset + 1, each.data_key.next_offset)
                assert joins & set(span), case
        assert refused <= said, case
        left = [each for each in listed if each.path not in said or each.data_key not in bad]
        assert report.waiting == waits(root.next_offset, CLAIMS, left), case


#: In part every fifth case is looked at: of all kinds of objects, with every hole.
STRIDE = 5


@in_part_and_in_full
def test_what_is_good_is_appended_as_the_rules_say_and_what_is_bad_is_passed_over(
    full: bool,
) -> None:
    site = Site()
    for objects, bad in islice(buckets(), 0, None, 1 if full else STRIDE):
        check(site, objects, bad)


@in_part_and_in_full
def test_over_holes_the_manifest_goes_as_the_rules_say(full: bool) -> None:
    site = Site()
    for objects in islice(with_holes(), 0, None, 1 if full else STRIDE):
        check(site, objects, set())
