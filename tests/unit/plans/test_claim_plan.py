from __future__ import annotations

import pytest

from coldstream.errors import FencedError
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.claim import NO_HISTORY, KnownHistory, LocalChunk, claim

#: The remote tier ends in the chunk 90..100 of epoch 5.
REMOTE = LastChunk(90, 5)
LOG = KnownHistory((LocalChunk(80, 90, 5), LocalChunk(90, 100, 5), LocalChunk(100, 110, 6)))


def test_a_known_history_gives_the_last_chunk_below_an_offset_and_the_last_one() -> None:
    assert LOG.chunks_near(100) == [LOG.chunks[1], LOG.chunks[2]]
    assert LOG.chunks_near(95) == [LOG.chunks[1], LOG.chunks[2]]
    assert LOG.chunks_near(80) == [LOG.chunks[2]]
    assert LOG.chunks_near(2**64 - 1) == [LOG.chunks[2]]


def test_a_known_history_gives_the_chunks_that_overlap_a_range() -> None:
    assert LOG.chunks_between(89, 91) == [LOG.chunks[0], LOG.chunks[1]]
    assert LOG.chunks_between(90, 100) == [LOG.chunks[1]]
    assert LOG.chunks_between(0, 80) == LOG.chunks_between(110, 120) == []


def test_nobody_has_no_history() -> None:
    assert LOG.first_offset() == 80
    assert NO_HISTORY.first_offset() is None
    assert NO_HISTORY.chunks_near(5) == []


def test_a_claim_takes_the_next_offset_as_its_floor() -> None:
    root = Root(0, 0, epoch=1, ledger=Ledger.of([(1, 0)]))

    claimed = claim(root, 4)

    assert (claimed.epoch, claimed.ledger) == (4, Ledger.of([(1, 0), (4, 0)]))


def test_an_epoch_cannot_be_claimed_twice_or_after_a_higher_one() -> None:
    root = Root(0, 0, epoch=4, ledger=Ledger.of([(4, 0)]))

    for epoch in (3, 4):
        with pytest.raises(FencedError):
            claim(root, epoch)


def test_an_epoch_below_the_last_chunks_cannot_claim() -> None:
    with pytest.raises(FencedError):
        claim(Root(0, 100, last_chunk=REMOTE), 4)
