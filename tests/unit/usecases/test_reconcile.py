"""Healing a stream without any event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import ConflictError, CorruptDataError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.usecases.reconcile import reconcile
from tests.support.remote import STREAM, Remote, chain, no_pause


def filled() -> Remote:
    remote = Remote().claimed()
    remote.upload(*chain(3))
    return remote


def test_a_stream_is_brought_forward_without_any_event() -> None:
    remote = filled()

    done = reconcile(remote.context, STREAM, pause=no_pause)

    assert (done.commits.next_offset, done.adopted) == (30, False)


def test_a_second_run_writes_nothing() -> None:
    remote = filled()
    reconcile(remote.context, STREAM, pause=no_pause)
    before = (remote.tampered(), dict(remote.items.items))

    reconcile(remote.context, STREAM, pause=no_pause)

    assert (remote.tampered(), dict(remote.items.items)) == before


def test_a_stream_that_is_being_deleted_is_left_alone() -> None:
    remote = filled()
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=StreamState.DELETING)

    with pytest.raises(ConflictError):
        reconcile(remote.context, STREAM, pause=no_pause)

    assert remote.items.items[STREAM].state is StreamState.DELETING


def test_a_damaged_root_of_a_good_item_is_told_and_no_other_is_adopted() -> None:
    remote = filled()
    remote.memory.objects[remote.items.items[STREAM].root_key] = b"damaged"
    context = remote.new_context()

    with pytest.raises(CorruptDataError):
        reconcile(context, STREAM, pause=no_pause)


def test_a_root_that_is_gone_under_a_good_item_is_told_and_no_other_is_adopted() -> None:
    remote = filled()
    del remote.memory.objects[remote.items.items[STREAM].root_key]
    context = remote.new_context()

    with pytest.raises(NotFoundError):
        reconcile(context, STREAM, pause=no_pause)


def test_a_lost_item_is_adopted_and_the_run_completed_at_once() -> None:
    remote = filled()
    reconcile(remote.context, STREAM, pause=no_pause)
    remote.upload(*chain(2, start=30))
    del remote.items.items[STREAM]

    done = reconcile(remote.new_context(), STREAM, pause=no_pause)

    assert (done.commits.next_offset, done.adopted) == (50, True)
