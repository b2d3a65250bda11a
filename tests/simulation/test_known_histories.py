"""Histories that broke a draft of the protocol: commits, claims, replacements, times.

Each story ends well, and the same story without its rule does not: it fails, and in the words that
are said here. The numbers are those of the protocol review; what is about deletion (3, 4, 10) and
about agents (5, 8) or little that is left to compare (11) is in the files beside this one.
"""

from __future__ import annotations

import pytest

from coldstream.errors import ConflictError, InternalError
from coldstream.reader import StreamReader, Timestamp
from coldstream.usecases.quarantine import current_record, lost_data
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.repair import repair
from coldstream_devkit.fragments import START_MS, build_fragment
from coldstream_devkit.simulation.mutants import without
from tests.simulation.retold import History, Retrying, Stream, Tapped
from tests.support.crashes import Crash
from tests.support.stage import PREFIX, STREAM, M, history, no_pause, path_of, upload

# --- 1: lost answer, then "did not land" ---


def a_commit_is_built_on_a_rebalance_whose_answer_was_lost() -> None:
    """The SDK sends the rebalance again, and its condition fails on somebody else's uid."""
    stream = Stream()
    stream.upload_tens(0, 80)
    stream.commit()

    def meanwhile() -> None:
        stream.upload(80, 90)
        stream.commit()

    stream.regroup(stream.context(catalog=Retrying(stream.place.catalog, meanwhile)))

    stream.ends_with((0, 90, 1))
    assert len(stream.root.entries) < 2 * M


def a_lost_answer_finds_its_own_root() -> None:
    """The SDK sends it again, and its condition fails on its own uid."""
    stream = Stream()
    stream.upload_tens(0, 80)
    stream.commit()
    before = stream.item.version

    stream.regroup(stream.context(catalog=Retrying(stream.place.catalog, lambda: None)))

    stream.ends_with((0, 80, 1))
    assert stream.item.version == before + 1


# --- 2: truncated data re-admitted ---


def what_was_truncated_is_uploaded_again() -> None:
    """Ledger (4, 0), (5, 100); epoch 6 truncates to 60; [60, 100) of epoch 4 is not above 100."""
    stream = Stream(epoch=4)
    stream.upload(0, 60, epoch=4)
    stream.upload(60, 100, epoch=4)
    stream.claim(5, history((0, 100, 4), (100, 110, 5)))
    stream.upload(100, 110, epoch=5)
    stream.commit()
    stream.claim(6, history((0, 60, 4), (60, 80, 6)))
    assert [(c.epoch, c.floor) for c in stream.item.ledger.claims] == [(4, 0), (5, 100), (6, 60)]

    stream.upload(60, 100, epoch=4)
    stream.commit()
    assert stream.item.next_offset == 60, "what was cut off is back"
    stream.upload(60, 80, epoch=6)

    stream.ends_with((0, 60, 4), (60, 80, 6))


# --- 6: quarantine lost ---


def the_agent_dies_when_its_truncating_claim_has_landed() -> None:
    """6a. Nobody else knows that it has cut anything off."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()

    def dies(name: str, claim: object) -> None:
        if name == "get" and stream.item.epoch == 2:
            raise Crash

    context = stream.context(catalog=Tapped(stream.place.catalog, dies))
    with pytest.raises(Crash):
        stream.claim(2, history((0, 30, 1), (30, 45, 2)), context)
    stream.upload(30, 45, epoch=2)
    stream.commit()
    stream.collect(6)

    stream.ends_with((0, 30, 1), (30, 45, 2))
    _, record = current_record(stream.context(), STREAM)
    timeline = record.timeline(2)
    assert timeline is not None, "nobody knows what was cut off"
    assert (timeline.floor, timeline.next_offset) == (30, 40)
    lost = lost_data(stream.context(), STREAM, timeline).root
    assert lost is not None
    assert path_of(lost.entries[-1]) in stream.objects


def a_lost_tail_was_uploaded_and_never_in_a_manifest() -> None:
    """6b. Epoch 1's agent was cut off from S3 while the new writer claimed."""
    stream = Stream()
    stream.upload_tens(0, 30)
    stream.commit()
    stream.claim(2, history((0, 30, 1), (30, 45, 2)))
    late = stream.upload(30, 40, epoch=1)
    stream.upload(30, 45, epoch=2)
    stream.commit()

    stream.collect(6)

    stream.ends_with((0, 30, 1), (30, 45, 2))
    assert late.path(PREFIX) in stream.objects, "the last copy of confirmed messages was deleted"


# --- 7: stuck claim ---


def a_rotten_fragment_lies_below_the_end_of_what_keys_say() -> None:
    """7a. Its writer is gone, so only the new one can fill the range."""
    stream = Stream()
    stream.upload(0, 10)
    rotten = stream.upload(10, 20)
    stream.objects[rotten.path(PREFIX)] = rotten.data[:-1] + b"?"
    stream.upload(20, 30)

    stream.claim(2, history((0, 30, 1), (30, 35, 2)))
    stream.upload(10, 35, epoch=2, chunk_epochs=(1, 1, 1, 1, 2))
    stream.commit()

    assert stream.item.next_offset == 35, f"the stream is stuck at {stream.item.next_offset}"
    stream.ends_with((0, 30, 1), (30, 35, 2))


def a_good_upload_of_an_older_epoch_comes_below_the_floor() -> None:
    """7b. Whoever commits it must not pass its epoch, which is lower than the item's.

    A claim's floor is its own end by now, so nothing of an older epoch can come below it any more:
    to have such a state at all, this story's claim takes its floor from keys, as the draft did.
    """
    stream = Stream()
    stream.upload(0, 10)
    rotten = stream.upload(10, 20)
    stream.objects[rotten.path(PREFIX)] = rotten.data[:-1] + b"?"
    with without("floor-verified"):
        stream.claim(2, history((0, 20, 1), (20, 35, 2)))
    assert (stream.item.next_offset, stream.item.ledger.floor(2)) == (10, 20)

    stream.upload(10, 20)
    try:
        stream.commit()
    except ConflictError as exc:
        raise AssertionError(f"the stream is stuck at 10: {exc}") from exc
    stream.upload(20, 35, epoch=2)

    stream.ends_with((0, 20, 1), (20, 35, 2))


def a_bad_duplicate_would_be_picked_every_time() -> None:
    """7c. Another upload of its range is good."""
    stream = Stream()
    stream.upload(0, 10)
    bad = stream.upload(10, 20, uid=2)
    stream.objects[bad.path(PREFIX)] = bad.data[:-1] + b"?"
    stream.upload(10, 20, uid=9)
    stream.upload(20, 30)

    stream.claim(2, history((0, 30, 1), (30, 35, 2)))
    stream.commit()

    assert stream.item.next_offset == 30, f"the stream is stuck at {stream.item.next_offset}"
    stream.ends_with((0, 30, 1))


# --- 9: replacements outside the ledger ---


def a_fragment_is_repaired_under_a_new_epoch() -> None:
    """9a. It lies below the floor of whoever is the writer by now."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    stream.upload(10, 30, uid=7777)
    stream.claim(2, history((0, 40, 1), (40, 45, 2)))
    damaged = path_of(stream.root.entries[1])
    stream.objects[damaged] = b"?" * len(stream.objects[damaged])

    repair(stream.context(), STREAM, ranges=None, branching=M, pause=no_pause)

    assert damaged not in stream.named()
    stream.ends_with((0, 40, 1))
    report = rebuild(stream.context(), STREAM, branching=M)
    assert report.rebuilt.root.next_offset == 40
    assert report.rebuilt.root.ledger == stream.root.ledger


def a_claim_cuts_a_fragment_of_an_older_epoch() -> None:
    """9a. What stays of it lies below the floors of all newer epochs.

    Under a newer epoch no root would take it (`parse_root`), so without the rule no claim lands.
    """
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.claim(2, history((0, 40, 1), (40, 50, 2)))
    stream.upload(40, 50, epoch=2)
    stream.commit()

    try:
        stream.claim(3, history((0, 15, 1), (15, 30, 3)))
    except InternalError as exc:
        raise AssertionError(f"the stream is stuck: {exc}") from exc
    stream.upload(15, 30, epoch=3)

    stream.ends_with((0, 15, 1), (15, 30, 3))


def a_manifest_is_rebuilt_beside_a_quarantined_run() -> None:
    """9b. The run in quarantine is the longer one, and the new writer has uploaded nothing yet."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    stream.claim(2, history((0, 30, 1), (30, 35, 2)))

    rebuild(stream.context(), STREAM, branching=M, dry_run=False)

    stream.ends_with((0, 30, 1))
    stream.upload(30, 35, epoch=2)
    stream.ends_with((0, 30, 1), (30, 35, 2))


def a_manifest_is_rebuilt_after_retention() -> None:
    """9c. What retention dropped is still in the bucket."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    stream.retire(2 * len(stream.upload(0, 10).data))

    rebuild(stream.context(), STREAM, branching=M, dry_run=False)

    stream.ends_with((20, 40, 1))


# --- 12: neighbours and clocks ---


def members_roll_their_segments_at_different_chunks() -> None:
    """12a. After a fail-over, and after a fragment was cut again, no segment and no number fits."""
    stream = Stream()
    for first, segment, uid in ((0, 0, 1), (10, 5, 2), (20, 0, 3), (30, 25, 4)):
        made = stream.upload(first, first + 10, uid=uid)
        del stream.objects[made.path(PREFIX)]
        other = made.lying(segment_offset=segment, sequence=7 * uid % 5, segment_position=8 + first)
        upload(stream.place, other)

    stream.commit()

    assert stream.item.next_offset == 40, f"the stream is stuck at {stream.item.next_offset}"


def a_fail_over_moves_the_clock_back() -> None:
    """12b. The greatest time of a fragment is in the middle of it."""
    stream = Stream()
    for first, times in ((0, (50, 100, 80)), (15, (120, 130, 140))):
        made = build_fragment(
            first,
            first + 15,
            stream=STREAM,
            uid=first + 1,
            timestamps=tuple(START_MS + each for each in times),
            records_per_chunk=5,
        )
        upload(stream.place, made)
    stream.commit()
    assert stream.item.next_offset == 30

    reader = StreamReader(stream.place.store, stream.place.catalog, PREFIX, STREAM)
    begin = reader.locate(Timestamp(START_MS + 90))

    assert begin == 5, f"a read by time begins at {begin}: rows are lost"


#: What happened, the rule, and how it ends without it.
HISTORIES = {
    "1 built upon": History(
        a_commit_is_built_on_a_rebalance_whose_answer_was_lost,
        "three-outcomes",
        "no such object",
    ),
    "1 own uid": History(a_lost_answer_finds_its_own_root, "three-outcomes", "no such object"),
    "2": History(what_was_truncated_is_uploaded_again, "ledger-minimum", "cut off is back"),
    "6a": History(
        the_agent_dies_when_its_truncating_claim_has_landed, "record-first", "nobody knows"
    ),
    "6b": History(a_lost_tail_was_uploaded_and_never_in_a_manifest, "content-proof", "last copy"),
    "7a": History(
        a_rotten_fragment_lies_below_the_end_of_what_keys_say, "floor-verified", "stuck at 10"
    ),
    "7b": History(
        a_good_upload_of_an_older_epoch_comes_below_the_floor, "items-epoch", "stuck at 10"
    ),
    "7c": History(a_bad_duplicate_would_be_picked_every_time, "resolve-again", "stuck at 10"),
    "9a repaired": History(a_fragment_is_repaired_under_a_new_epoch, "repair-epoch", "fencing"),
    "9a cut": History(
        a_claim_cuts_a_fragment_of_an_older_epoch, "replacement-epoch", "the stream is stuck"
    ),
    "9b": History(
        a_manifest_is_rebuilt_beside_a_quarantined_run, "rebuild-newest-root", "other chunks"
    ),
    "9c": History(a_manifest_is_rebuilt_after_retention, "rebuild-newest-root", "other chunks"),
    "12a": History(members_roll_their_segments_at_different_chunks, "neighbours", "stuck at 10"),
    "12b": History(a_fail_over_moves_the_clock_back, "min-max", "rows are lost"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_known_history_ends_well(name: str) -> None:
    HISTORIES[name].story()


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_rule_a_known_history_loses_something(name: str) -> None:
    HISTORIES[name].ends_badly_without_its_rule()
