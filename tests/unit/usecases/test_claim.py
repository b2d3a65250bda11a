from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import (
    ConflictError,
    DivergedError,
    FencedError,
    ForeignBucketError,
    NotFoundError,
)
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import LastChunk
from coldstream.plans.claim import NO_HISTORY, LocalChunk
from coldstream.ports import NotLanded, Unknown
from coldstream.usecases.claim import anchor, root_again
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause, piece


def commit(remote: Remote) -> int:
    return commit_runs(remote.context, STREAM, pause=no_pause).next_offset


# The anchor.


def test_an_anchor_begins_an_empty_stream_where_the_log_begins() -> None:
    remote = Remote()

    item = anchor(remote.context, STREAM, 1592, QueueName("c", "/", "orders"))

    assert (item.first_offset, item.next_offset, item.version) == (1592, 1592, 0)
    assert item.name == QueueName("c", "/", "orders")
    assert item.table_id == remote.items.table_id()
    assert remote.tampered() == {}


def test_an_anchor_that_is_there_is_returned_whatever_is_in_the_bucket() -> None:
    remote = Remote().claimed()
    remote.upload(piece(0, 10))
    there = remote.items.items[STREAM]

    assert remote.anchor(77) == there
    assert remote.items.items[STREAM] == there


@pytest.mark.parametrize(
    "key",
    [
        piece(0, 10).path(PREFIX),
        f"{PREFIX}stream/{STREAM}/metadata/root.0000000001.000000000001.0000000000000001.manifest",
        f"{PREFIX}stream/{STREAM}/metadata/00000000000000000000.0000000000000001.group",
    ],
)
def test_history_3_no_anchor_where_objects_exist_without_an_item(key: str) -> None:
    remote = Remote()
    remote.memory.put(key, b"x", write_id="w")

    with pytest.raises(ConflictError) as caught:
        remote.anchor()

    assert caught.value.stream == STREAM
    assert remote.items.items == {}


def test_objects_of_a_stream_with_a_longer_name_are_no_obstacle() -> None:
    remote = Remote()
    remote.upload(piece(0, 10, stream=f"{STREAM}1"))

    assert remote.anchor().version == 0


def test_of_two_anchors_at_the_same_time_both_see_the_one_that_was_first() -> None:
    remote = Remote()
    other = CatalogItem(STREAM, "memory", first_offset=5, next_offset=5)
    remote.catalog.before["anchor"] = lambda *_: remote.items.anchor(other)

    assert remote.anchor(9) == other


# The claim.


def test_a_claim_puts_epoch_and_floor_into_the_ledger() -> None:
    remote = Remote()
    remote.anchor(100)

    item = remote.claim(3)

    assert (item.epoch, item.version) == (3, 1)
    assert item.ledger == remote.root().ledger == Ledger.of([(3, 100)])


def test_a_second_claim_of_an_epoch_finds_the_first_and_writes_nothing() -> None:
    remote = Remote().claimed(3)
    item = remote.items.items[STREAM]

    assert remote.claim(3) == item
    assert remote.store.calls["put"] == 0


def test_a_claim_by_another_process_of_the_same_epoch_finds_it_too() -> None:
    remote = Remote().claimed(3)
    remote.context = remote.new_context()

    assert remote.claim(3).version == 1


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_lower_epoch_is_fenced_whether_it_had_claimed_or_was_passed_over(epoch: int) -> None:
    remote = Remote().claimed(1)
    remote.claim(3)

    with pytest.raises(FencedError) as caught:
        remote.claim(epoch)

    assert caught.value.stream == STREAM


def test_history_7_a_claim_appends_what_is_good_and_its_floor_lies_above_it() -> None:
    remote = Remote().claimed(1)
    good = chain(3)
    rotten = replace(piece(30, 40), data=b"rotten")
    remote.upload(*good, rotten, piece(40, 50))

    item = remote.claim(2)

    assert item.ledger == Ledger.of([(1, 0), (2, 30)])
    assert item.version == 2, "run and claim are one commit"
    assert len(remote.ranges()) == 3

    remote.upload(piece(30, 45, epoch=2, floor=30), piece(45, 60, epoch=2, floor=30))
    assert commit(remote) == 60, "the new epoch fills what the rotten fragment left"


def test_a_late_upload_of_the_old_epoch_below_the_new_floor_is_not_needed_any_more() -> None:
    remote = Remote().claimed(1)
    remote.upload(piece(0, 10))
    remote.claim(2)

    remote.upload(piece(10, 20), piece(0, 20, uid=5))

    assert commit(remote) == 10


def test_fencing_holds_however_late_an_upload_of_the_old_epoch_comes() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(3))
    commit(remote)
    remote.claim(2)
    remote.upload(*chain(3, start=30), *chain(3, start=30, epoch=2, floor=30))

    assert commit(remote) == 60
    assert [entry.epoch for entry in remote.root().entries] == [1, 1, 1, 2, 2, 2]


def test_a_claim_longer_than_one_commit_takes_several_and_only_the_last_claims() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(25))

    item = remote.claim(2, limit=10)

    assert item.ledger == Ledger.of([(1, 0), (2, 250)])
    assert item.version == 1 + 2 + 1
    assert len(remote.ranges()) == 25


def test_a_claim_that_loses_to_a_commit_is_planned_again_on_top_of_it() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(2))
    other = remote.new_context()
    remote.catalog.before["commit"] = lambda *_: commit_runs(other, STREAM, pause=no_pause)

    item = remote.claim(2)

    assert item.ledger == Ledger.of([(1, 0), (2, 20)])
    assert item.version == 3


def test_a_claim_that_loses_to_a_higher_claim_is_fenced() -> None:
    remote = Remote().claimed(1)
    other = remote.new_context()
    remote.catalog.before["commit"] = lambda *_: claim(
        other, STREAM, 5, log=NO_HISTORY, pause=no_pause
    )

    with pytest.raises(FencedError):
        remote.claim(3)

    assert remote.items.items[STREAM].ledger == Ledger.of([(1, 0), (5, 0)])


def test_a_claim_with_an_unknown_answer_is_found_by_reading_again() -> None:
    remote = Remote().claimed(1)
    remote.catalog.after["commit"] = lambda answer: Unknown(answer.item)

    assert remote.claim(2).ledger == Ledger.of([(1, 0), (2, 0)])
    assert remote.catalog.calls["commit"] == 1


def test_endless_conflicts_of_a_claim_end_in_an_error() -> None:
    remote = Remote().claimed(1)
    remote.items.commit = lambda given: Unknown(None)  # type: ignore[method-assign]

    with pytest.raises(ConflictError):
        remote.claim(2, attempts=3)


def test_conflicts_of_a_long_claim_are_counted_from_the_last_commit_that_landed() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(6))
    real, calls = remote.items.commit, [0]

    def every_second(given: Any) -> Any:
        calls[0] += 1
        return real(given) if calls[0] % 2 == 0 else NotLanded(remote.items.get(given.stream))

    remote.items.commit = every_second  # type: ignore[method-assign]

    assert remote.claim(2, attempts=2, limit=1).ledger == Ledger.of([(1, 0), (2, 60)])


def test_a_stream_without_an_item_cannot_be_claimed() -> None:
    with pytest.raises(NotFoundError):
        Remote().claim(1)


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.REBUILDING])
def test_a_stream_that_is_not_live_cannot_be_claimed(state: StreamState) -> None:
    remote = Remote().claimed(1)
    remote.items.items[STREAM] = replace(remote.items.items[STREAM], state=state)

    with pytest.raises(ConflictError):
        remote.claim(2)


# Divergence; see test_divergence_of_logs.py and test_truncate.py for what becomes of it.


def test_a_log_that_agrees_claims() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(3))

    remote.claim(2, LocalChunk(20, 30, 1), LocalChunk(30, 40, 2))

    assert remote.root().last_chunk == LastChunk(20, 1)


def test_a_log_that_differs_from_what_its_own_epoch_has_claimed_changes_nothing() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(3))
    commit(remote)
    remote.claim(2)
    before = (remote.tampered(), dict(remote.items.items))

    with pytest.raises(DivergedError) as caught:
        remote.claim(2, LocalChunk(20, 30, 2))

    assert (caught.value.stream, caught.value.offset) == (STREAM, 20)
    assert (remote.tampered(), dict(remote.items.items)) == before


# A bucket that has nothing of a stream which the catalog knows.


def claimed_elsewhere() -> Remote:
    """A stream that was claimed with another bucket: the catalog's root is not in this one."""
    remote = Remote().claimed(3, first_offset=100)
    remote.memory.objects.clear()
    remote.context = remote.new_context()
    return remote.forget()


def test_a_claim_that_another_bucket_holds_blocks_no_new_stream_for_good() -> None:
    remote = claimed_elsewhere()

    item = remote.claim(3)

    assert (item.epoch, item.version, item.next_offset) == (3, 2, 100)
    assert item.ledger == remote.root().ledger == Ledger.of([(3, 100)])
    remote.upload(piece(100, 110, epoch=3, floor=100))
    assert commit(remote) == 110


def test_who_was_fenced_in_another_bucket_stays_fenced() -> None:
    remote = claimed_elsewhere()

    with pytest.raises(FencedError):
        remote.claim(2)


def test_a_newer_writer_may_claim_over_a_root_that_is_in_another_bucket() -> None:
    remote = claimed_elsewhere()

    assert remote.claim(5).ledger.floor(5) == 100


def test_a_manifest_that_has_held_data_is_never_begun_again_in_an_empty_bucket() -> None:
    remote = Remote().claimed(1)
    remote.upload(*chain(3))
    commit(remote)
    there = remote.items.items[STREAM]
    remote.memory.objects.clear()
    remote.context = remote.new_context()

    for epoch in (1, 2):
        with pytest.raises(ForeignBucketError) as caught:
            remote.claim(epoch)

    assert (caught.value.stream, caught.value.offset, caught.value.key) == (
        STREAM,
        30,
        there.root_key,
    )
    for part in ("0..30", "bucket", f"{PREFIX}stream/{STREAM}/"):
        assert part in str(caught.value)
    assert remote.items.items[STREAM] == there
    assert remote.tampered() == {}


def test_a_root_is_not_made_anew_where_the_bucket_has_any_object_of_the_stream() -> None:
    remote = claimed_elsewhere()
    remote.upload(piece(100, 110, epoch=3, floor=100))
    there = remote.items.items[STREAM]

    with pytest.raises(NotFoundError):
        remote.claim(3)

    assert remote.items.items[STREAM] == there


def test_an_empty_manifest_that_was_committed_to_is_not_begun_again() -> None:
    """Retention may have taken all that it held, and its root knew what the last chunk was."""
    remote = claimed_elsewhere()
    remote.claim(3)
    remote.memory.objects.clear()
    remote.context = remote.new_context()

    with pytest.raises(ForeignBucketError):
        remote.claim(3)


def test_of_two_that_make_a_root_anew_both_go_on_with_the_one_that_landed() -> None:
    remote = claimed_elsewhere()
    other = remote.new_context()
    remote.catalog.before["commit"] = lambda *_: root_again(other, STREAM)

    item = remote.claim(3)

    assert item.version == 2
    assert remote.root().ledger == Ledger.of([(3, 100)])


@pytest.mark.parametrize("key", ["data//x", "z", "metadata/other", "data/../up"])
def test_a_stream_begins_although_others_have_put_objects_below_its_name(key: str) -> None:
    remote = Remote()
    remote.memory.put(f"{PREFIX}stream/{STREAM}/{key}", b"x", write_id="odd")

    remote.claimed()

    assert remote.items.items[STREAM].epoch == 1
