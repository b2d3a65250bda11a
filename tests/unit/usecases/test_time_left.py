"""A Lambda that runs out of time keeps what it has done, and says what is left."""

from __future__ import annotations

import json
from collections.abc import Callable

from coldstream.errors import UnavailableError
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.handle_events import handle_messages
from tests.support.remote import STREAM, Remote, chain, no_pause


def times(count: int) -> Callable[[], bool]:
    """True so often, and false from then on."""
    left = iter([True] * count)
    return lambda: next(left, False)


def test_a_long_run_stops_between_commits_and_says_that_more_is_left() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(4))

    report = commit_runs(remote.context, STREAM, pause=no_pause, limit=1, time_left=times(1))

    assert (report.commits, report.next_offset, report.more) == (2, 20, True)
    assert commit_runs(remote.context, STREAM, pause=no_pause).next_offset == 40


def test_messages_of_a_stream_that_time_did_not_suffice_for_are_delivered_again() -> None:
    remote = Remote().claimed()
    remote.upload(*chain(1))
    messages = [("m1", json.dumps({"stream": STREAM}))]

    batch = handle_messages(remote.context, messages, pause=no_pause, time_left=times(0))

    assert isinstance(batch.failed["m1"], UnavailableError)
    assert remote.ranges() == []
