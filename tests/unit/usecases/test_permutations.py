"""Events carry no truth: any order, loss or repetition of them gives the same manifest."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from coldstream.manifest.entries import Entries
from coldstream.usecases.handle_events import handle_messages
from coldstream.usecases.reconcile import reconcile
from tests.support.remote import PREFIX, STREAM, Remote, chain, messages, no_pause, piece, s3_event

SIX = chain(6)
ALL = [(each.key.first_offset, each.key.next_offset, each.key.uid) for each in SIX]
PERMUTATIONS = list(itertools.permutations(range(6)))


def announce(remote: Remote, *bodies: str) -> None:
    batch = handle_messages(remote.context, messages(bodies), pause=no_pause)
    assert batch.failed == {}


def reconciled(remote: Remote) -> Entries:
    remote.context = remote.new_context()  # another Lambda
    reconcile(remote.context, STREAM, pause=no_pause)
    return remote.root().entries


@pytest.fixture(scope="module")
def expected() -> Entries:
    remote = Remote().claimed()
    remote.upload(*SIX)
    entries = reconciled(remote)
    assert [(e.first_offset, e.next_offset, e.uid) for e in entries] == ALL
    return entries


def test_uploads_and_events_in_any_of_720_orders_give_the_same_manifest(
    expected: Entries,
) -> None:
    for order in PERMUTATIONS:
        remote = Remote().claimed()
        for number in order:
            (path,) = remote.upload(SIX[number])
            announce(remote, s3_event(path))
        assert remote.root().entries == expected, order


def test_events_after_all_uploads_in_any_of_720_orders_give_the_same_manifest(
    expected: Entries,
) -> None:
    for order in PERMUTATIONS:
        remote = Remote().claimed()
        paths = remote.upload(*SIX)
        announce(remote, *(s3_event(paths[number]) for number in order))
        assert remote.root().entries == expected, order
        assert remote.root().version == 2, "one commit for the whole batch"


def test_doubled_and_lost_events_in_any_of_720_orders_give_the_same_manifest_once_reconciled(
    expected: Entries,
) -> None:
    for seed, order in enumerate(PERMUTATIONS):
        chance = random.Random(seed)
        remote = Remote().claimed()
        late: list[str] = []
        for number in order:
            (path,) = remote.upload(SIX[number])
            late += [s3_event(path)] * chance.choice([0, 0, 1, 2])
            chance.shuffle(late)
            announce(remote, *(late.pop() for _ in range(chance.randint(0, len(late)))))
            remote.root()  # whatever happened so far is readable
        assert reconciled(remote) == expected, order


def test_the_reconciler_alone_gives_the_same_manifest_at_any_point_of_any_order(
    expected: Entries,
) -> None:
    for seed, order in enumerate(PERMUTATIONS):
        remote = Remote().claimed()
        stops = set(random.Random(seed).sample(range(6), 2))
        for step, number in enumerate(order):
            remote.upload(SIX[number])
            if step in stops:
                reconciled(remote)
        assert reconciled(remote) == expected, order
        assert reconciled(remote) == expected, "a second time changes nothing"


def test_manifests_grow_only_by_whole_prefixes_in_any_order() -> None:
    for order in PERMUTATIONS[::7]:
        remote = Remote().claimed()
        there: set[int] = set()
        for number in order:
            there.add(number)
            (path,) = remote.upload(SIX[number])
            announce(remote, s3_event(path))
            prefix = next(n for n in range(7) if n not in there)
            assert remote.ranges() == ALL[:prefix], order


def test_bad_fragments_among_the_events_change_nothing_in_any_order(expected: Entries) -> None:
    bad = [replace(piece(n * 10, n * 10 + 10, uid=n + 1), data=b"garbage") for n in (1, 4)]
    for order in PERMUTATIONS[::11]:
        remote = Remote().claimed()
        remote.upload(*bad)
        bodies = []
        for number in order:
            bodies += [s3_event(path) for path in remote.upload(SIX[number])]
        bodies += [s3_event(each.path(PREFIX)) for each in bad]
        batch = handle_messages(remote.context, messages(bodies), pause=no_pause)

        assert remote.root().entries == expected, order
        assert set(batch.failed) == {"m6", "m7"}


def test_an_agent_that_asks_is_as_good_as_an_event(expected: Entries) -> None:
    remote = Remote().claimed()
    remote.upload(*SIX)

    announce(remote, f'{{"stream": "{STREAM}"}}')

    assert remote.root().entries == expected
