"""A reconcile that commits nothing says exactly what a real one then does."""

from __future__ import annotations

import pytest

from coldstream.errors import ConflictError, NotFoundError
from coldstream.usecases.ahead import ahead
from coldstream.usecases.commit_runs import commit_runs
from tests.support.remote import STREAM, Remote, chain, no_pause, piece


@pytest.mark.parametrize("limit", [1, 3, 7, 500])
def test_what_is_ahead_is_what_is_committed_then(limit: int) -> None:
    remote = Remote().claimed()
    bad = piece(70, 80)
    remote.upload(*chain(7), bad.lying(first_offset=71))
    bucket, item = remote.tampered(), remote.items.get(STREAM)

    told = ahead(remote.context, STREAM, limit=limit)
    again = ahead(remote.new_context(), STREAM, limit=limit)

    assert (remote.tampered(), remote.items.get(STREAM)) == (bucket, item)
    assert (told.first_offset, told.next_offset, told.fragments) == (0, 70, 7)
    assert again.bytes == told.bytes
    done = commit_runs(remote.context, STREAM, pause=no_pause, limit=limit)
    assert (done.fragments, done.bytes, done.next_offset) == (7, told.bytes, told.next_offset)
    assert [each.key for each in done.refused] == [each.key for each in told.refused]
    assert len(told.refused) == 1
    assert ahead(remote.context, STREAM).fragments == 0


def test_the_time_ends_a_look_between_two_commits() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(7))

    told = ahead(remote.context, STREAM, limit=2, time_left=lambda: False)

    assert (told.fragments, told.next_offset) == (2, 20)


def test_a_stream_that_takes_no_commits_is_refused() -> None:
    remote = Remote().claimed()
    with pytest.raises(NotFoundError):
        ahead(remote.context, "nobody")
    remote.items._table_id = "after a restore"
    with pytest.raises(ConflictError):
        ahead(remote.new_context(), STREAM)
