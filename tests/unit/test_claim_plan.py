from __future__ import annotations

import pytest

from coldstream.errors import DivergedError, FencedError
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk, Root
from coldstream.plans.claim import LocalChunk, check_common_history, claim

#: The remote tier ends in the chunk 90..100 of epoch 5.
REMOTE = LastChunk(90, 5)


def check(*local: LocalChunk, remote: LastChunk | None = REMOTE) -> None:
    check_common_history(remote, 100, local, stream="__s_1")


@pytest.mark.parametrize(
    "local",
    [
        (),
        (LocalChunk(90, 100, 5),),
        (LocalChunk(90, 100, 5), LocalChunk(100, 110, 5)),
        (LocalChunk(90, 100, 5), LocalChunk(300, 310, 7)),
        (LocalChunk(80, 90, 5),),
        (LocalChunk(80, 90, 4),),
        (LocalChunk(0, 1, 1),),
        (LocalChunk(100, 110, 5),),
        (LocalChunk(100, 110, 6), LocalChunk(500, 600, 9)),
    ],
)
def test_a_log_that_agrees_or_is_merely_shorter_or_begins_later_is_no_evidence(
    local: tuple[LocalChunk, ...],
) -> None:
    check(*local)


@pytest.mark.parametrize(
    ("local", "why"),
    [
        (LocalChunk(90, 100, 4), "same id, older epoch"),
        (LocalChunk(90, 100, 6), "same id, newer epoch"),
        (LocalChunk(90, 99, 5), "same id, other end below"),
        (LocalChunk(90, 101, 5), "same id, other end above"),
        (LocalChunk(95, 105, 5), "straddles the end"),
        (LocalChunk(80, 105, 5), "straddles the end from before the last chunk"),
        (LocalChunk(95, 100, 5), "begins inside the last chunk"),
        (LocalChunk(80, 95, 5), "ends inside the last chunk"),
        (LocalChunk(80, 100, 5), "contains the last chunk"),
        (LocalChunk(80, 91, 3), "ends just inside the last chunk"),
        (LocalChunk(50, 60, 6), "a newer epoch below the end"),
    ],
)
def test_a_chunk_that_cannot_be_in_the_same_history_is_divergence(
    local: LocalChunk, why: str
) -> None:
    with pytest.raises(DivergedError) as caught:
        check(local)

    assert caught.value.stream == "__s_1", why
    assert caught.value.offset == local.chunk_id


def test_an_older_epoch_above_the_end_is_divergence_because_epochs_never_fall() -> None:
    # It would be uploaded, and refused for ever by everybody who verifies it.
    with pytest.raises(DivergedError):
        check(LocalChunk(100, 110, 4))
    with pytest.raises(DivergedError):
        check(LocalChunk(100, 110, 4), LocalChunk(500, 510, 6))


def test_without_a_last_chunk_there_is_nothing_to_compare() -> None:
    check(LocalChunk(50, 150, 9), remote=None)


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
