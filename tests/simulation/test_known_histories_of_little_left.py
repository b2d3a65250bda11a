"""Histories that broke a draft of the protocol: nothing is left to compare (number 11).

As in `test_known_histories`: each ends well, and without its rule it does not.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from coldstream.errors import DivergedError
from coldstream.manifest.entries import EntryKind
from coldstream.names import parse_data_key
from coldstream.usecases.quarantine import current_record
from coldstream.usecases.repair import repair
from coldstream_devkit.steps import prefix_retention
from tests.simulation.retold import History, Stream
from tests.support.stage import PREFIX, STREAM, M, history, no_pause, none, path_of


def retention_takes_all_it_may() -> None:
    """11a. Then comes a writer whose log is another history, and shorter.

    Without the rule retention's own invariant breaks. The claim alone would still end well here: it
    begins anew where no chunk ends at the end of an empty manifest, whatever the root remembers.
    """
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    before = stream.root
    stream.retire(1)
    none(prefix_retention(before, stream.root))

    stream.claim(2, history((0, 30, 1), (30, 35, 2)))
    stream.upload_tens(0, 30, epoch=2, chunk_epochs=(1,))
    stream.upload(30, 35, epoch=2)

    stream.ends_with((0, 30, 1), (30, 35, 2))


def nothing_but_a_hole_is_left_and_the_new_log_begins_behind_it() -> None:
    """11b. Retention left one fragment, that was lost and given up; the log has an older epoch.

    So it is another history, and nothing shows where it begins: nobody may claim by it.
    """
    stream = _of_a_hole(epoch=3)

    with suppress(DivergedError):
        stream.claim(4, history((40, 45, 2), (45, 50, 4)))
        raise AssertionError("another history was claimed, and nobody has seen it")

    assert (stream.item.epoch, stream.item.next_offset) == (3, 40)


def _of_a_hole(*, epoch: int = 1) -> Stream:
    """A stream of which only a hole over [30, 40) is left, that `repair` has declared."""
    stream = Stream(epoch=epoch)
    stream.upload_tens(0, 40, epoch=epoch)
    stream.commit()
    stream.retire(1)
    del stream.objects[path_of(stream.root.entries[-1])]
    repair(stream.context(), STREAM, ranges=None, lost=True, branching=M, pause=no_pause)
    assert [each.kind for each in stream.root.entries] == [EntryKind.HOLE]
    return stream


def nothing_is_common_and_a_chunk_lies_across_the_end() -> None:
    """11c. No run of the new log can ever start at the manifest's end."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    stream.retire(1)
    log = history((20, 55, 2))

    stream.claim(2, log)
    first = stream.item.next_offset
    if first == 20:
        stream.upload(20, 55, epoch=2)
    stream.commit()

    assert stream.item.next_offset == 55, f"the stream is stuck at {stream.item.next_offset}"
    stream.ends_with((20, 55, 2))
    assert current_record(stream.context(), STREAM)[1].timeline(2) is not None
    stream.collect(6)
    assert any(parse_data_key(key, PREFIX).epoch == 1 for key in stream.objects if "/data/" in key)


#: What happened, the rule, and how it ends without it.
HISTORIES = {
    "11a": History(retention_takes_all_it_may, "last-fragment", "last fragment is gone"),
    "11b": History(
        nothing_but_a_hole_is_left_and_the_new_log_begins_behind_it,
        "last-chunk",
        "nobody has seen it",
    ),
    "11c": History(nothing_is_common_and_a_chunk_lies_across_the_end, "start-anew", "stuck at 40"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_known_history_of_little_left_ends_well(name: str) -> None:
    HISTORIES[name].story()


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_rule_a_known_history_of_little_left_loses_something(name: str) -> None:
    HISTORIES[name].ends_badly_without_its_rule()


def test_a_shorter_diverged_log_is_seen_where_the_tail_is_a_hole() -> None:
    """11, once more: here what is left before the hole is enough, whatever the root remembers."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    del stream.objects[path_of(stream.root.entries[-1])]
    repair(stream.context(), STREAM, ranges=None, lost=True, branching=M, pause=no_pause)
    assert stream.item.next_offset == 40

    stream.claim(2, history((0, 30, 1), (30, 35, 2)))
    assert stream.item.next_offset == 30
    stream.upload(30, 35, epoch=2)

    stream.ends_with((0, 30, 1), (30, 35, 2))


@pytest.mark.parametrize("before", [0, 30])
def test_a_log_that_begins_in_a_repaired_hole_can_claim(before: int) -> None:
    """7 and 11: the root's last chunk lies in the hole, above where the claim cuts it back.

    Args:
        before: offsets before the hole that are still there.
    """
    stream = _of_a_hole() if not before else Stream()
    if before:
        stream.upload_tens(0, 40)
        stream.commit()
        del stream.objects[path_of(stream.root.entries[-1])]
        repair(stream.context(), STREAM, ranges=None, lost=True, branching=M, pause=no_pause)

    stream.claim(2, history((30, 40, 1), (40, 45, 2)))
    stream.upload(30, 45, epoch=2, chunk_epochs=(1, 1, 2))

    stream.ends_with(*(((0, 30, 1),) if before else ()), (30, 40, 1), (40, 45, 2))


def test_a_log_that_has_the_chunk_that_the_root_remembers_shares_it() -> None:
    """11: so nothing begins anew, and what retention took does not come back."""
    stream = _of_a_hole()

    stream.claim(2, history((0, 40, 1), (40, 45, 2)))

    assert stream.item.first_offset == 30
