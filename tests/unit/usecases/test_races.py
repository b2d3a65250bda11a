"""Many committers, claimants and uploaders at once: one manifest, and every step of it holds."""

from __future__ import annotations

import contextlib
import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.errors import FencedError
from coldstream.manifest.invariants import agreement, coverage, fencing
from coldstream.manifest.root import Root, parse_root
from coldstream.plans.claim import NO_HISTORY
from coldstream.remote.roots import load
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.claims import claim
from coldstream_devkit.steps import contiguous_advance, prefix_retention
from tests.support.remote import STREAM, Remote, chain, no_pause, piece


def landed_roots(remote: Remote) -> list[Root]:
    """Every root that the catalog ever named, oldest first, by walking back from the current one.

    A root that did not land has the version of one that did; of those only the landed one is a
    prefix of what followed, so the chain is found by content.
    """
    current = load(remote.new_context(), STREAM).root
    everything = [
        parse_root(data) for key, data in remote.tampered().items() if "/metadata/root." in key
    ]
    chain_of_roots = [current]
    while chain_of_roots[0].version > 1:
        after = chain_of_roots[0]
        before = [
            root
            for root in everything
            if root.version == after.version - 1
            and bytes(after.entries).startswith(bytes(root.entries))
            and after.ledger.claims[: len(root.ledger.claims)] == root.ledger.claims
        ]
        assert before, f"no root of version {after.version - 1} leads to {after.version}"
        chain_of_roots.insert(0, before[0])
    return chain_of_roots


@pytest.mark.parametrize("seed", range(10))
def test_racing_committers_and_claimants_give_one_manifest(seed: int) -> None:
    chance = random.Random(seed)
    remote = Remote(seed).claimed()
    uploads = [
        *chain(20),
        *(piece(n * 10, n * 10 + 20, uid=n + 1) for n in range(0, 19, 3)),
        *(piece(n * 10, n * 10 + 10, uid=2**40 + n) for n in range(20)),
    ]
    chance.shuffle(uploads)

    def commit(number: int) -> None:
        remote.upload(*uploads[number::6])
        commit_runs(remote.new_context(), STREAM, pause=no_pause, attempts=100)

    def claims(number: int) -> None:
        with contextlib.suppress(FencedError):
            claim(
                remote.new_context(),
                STREAM,
                number,
                log=NO_HISTORY,
                pause=no_pause,
                attempts=100,
            )

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(commit, number) for number in range(6)]
        running += [pool.submit(claims, number) for number in (2, 3)]
        for each in running:
            each.result()

    item, root = (loaded := load(remote.new_context(), STREAM)).item, loaded.root
    assert agreement(item, root) == coverage(root) == fencing(root) == []
    steps = landed_roots(remote)
    for before, after in itertools.pairwise(steps):
        assert contiguous_advance(before, after) == []
        assert prefix_retention(before, after) == []
    if root.ledger.epoch > 1:
        floor = root.ledger.claims[1].floor
        assert root.next_offset == floor, "nothing of epoch 1 past the floor, however late"
