"""Histories that broke a draft of the protocol: lost tables, garbage that is none, tombstones.

As in `test_known_histories`: each ends well, and without its rule it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.disk.log import StreamLog
from coldstream.errors import ColdstreamError, ConflictError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.plans.policy import PolicySet
from coldstream.usecases import delete_stream as deleting
from coldstream.usecases.collect import collect
from coldstream.usecases.rebuild import rebuild
from coldstream.usecases.stragglers import sweep_stragglers
from tests.simulation.retold import GRACE_MS, History, Stream, Tapped, once_before
from tests.simulation.retold_agents import Node
from tests.support.crashes import Crash, OverWire, Wire
from tests.support.stage import PREFIX, STREAM, M

YEAR_MS = 365 * 24 * 3600 * 1000

# --- 3: table lost or restored ---


def the_item_is_missing_and_an_agent_comes() -> None:
    """3a. What was uploaded long ago is in no local log any more."""
    stream = Stream()
    node = Node(stream, (0, 30, 1))
    node.look()
    node.write((30, 60, 1))
    node.retire(1)
    stream.lose_table()

    node = Node(stream, (20, 60, 1))
    node.look()
    stream.reconcile()
    node.look()
    stream.collect(6)

    stream.ends_with((0, 60, 1))


def a_root_that_misses_a_group_never_landed() -> None:
    """3b. Its writer slept longer than the grace time between group and root, and then died."""
    stream = Stream()
    stream.upload_tens(0, 80)
    stream.commit()
    before = stream.item.root_key

    def dies() -> None:
        raise Crash

    sleeps = once_before("put", ".manifest", lambda: stream.collect(4))
    context = stream.context(
        store=Tapped(stream.place.store, sleeps),
        catalog=Tapped(stream.place.catalog, once_before("commit", "", dies)),
    )
    # Either it dies, or it finds that it slept for too long; its root is in the bucket anyway.
    with pytest.raises((Crash, ConflictError)):
        stream.regroup(context)
    assert stream.item.root_key == before
    stream.lose_table()
    stream.reconcile()

    stream.ends_with((0, 80, 1))


def a_rebalance_dies_at_any_call() -> None:
    """3b. Whatever root is there, also one that never landed, has all that it refers to."""
    before = Stream()
    before.upload_tens(0, 80)
    before.commit()
    for calls in range(8):
        for carried_out in (False, True):
            stream = Stream(place=before.place.copy())
            wire = Wire(calls, carried_out=carried_out)
            context = stream.context(
                store=OverWire(stream.place.store, wire),
                catalog=OverWire(stream.place.catalog, wire),
            )
            with suppress(Crash):
                stream.regroup(context)
            stream.ends_with((0, 80, 1))


def a_warm_process_works_on_a_restored_table() -> None:
    """3c. It has the root of that time in memory; the fragments of that time are gone."""
    stream = Stream()
    stream.upload_tens(0, 50)
    stream.commit()
    warm = stream.context()
    stream.upload(50, 60)
    stream.commit(warm)
    backup = dict(stream.place.catalog.items)
    stream.consolidate()
    stream.collect(4)

    stream.lose_table(backup)
    warm = replace(warm, catalog=stream.place.catalog)
    stream.upload(60, 70)
    with suppress(ConflictError):
        stream.commit(warm)
    stream.reconcile()

    stream.ends_with((0, 70, 1))


def a_restored_tombstone_has_expired_meanwhile() -> None:
    """3c. The deletion was called off after the backup."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    tombstone = deleting.delete_stream(
        stream.context(), STREAM, PolicySet(), now_ms=stream.now, undelete_ms=GRACE_MS
    )
    backup = dict(stream.place.catalog.items)
    deleting.undelete_stream(stream.context(), STREAM)
    stream.upload(40, 50)
    stream.commit()
    stream.now += 2 * GRACE_MS

    stream.lose_table(backup)
    _sweep(stream, tombstone.revision)
    stream.reconcile()

    assert stream.item.state is StreamState.LIVE
    stream.ends_with((0, 50, 1))


# --- 4: garbage that is not ---


def no_node_refers_to_the_current_root() -> None:
    """4a. Only the item does."""
    stream = Stream()
    stream.upload_tens(0, 80)
    stream.commit()
    stream.regroup()

    with suppress(NotFoundError):
        stream.collect(6)

    stream.ends_with((0, 80, 1))


def a_fragment_is_a_year_old_and_unreferenced_since_a_second() -> None:
    """4b. A reader that has begun with the root before still needs it."""
    stream = Stream()
    stream.upload_tens(0, 60)
    stream.commit()
    stream.now += YEAR_MS
    stream.collect(1)
    readers = stream.keys
    stream.consolidate()

    stream.collect(3, wait=GRACE_MS // 10)

    gone = readers - stream.objects.keys()
    assert not gone, f"a reader of a second ago misses {sorted(gone)}"
    stream.ends_with((0, 60, 1))


def what_was_garbage_is_live_when_it_is_deleted() -> None:
    """4c. Between proof and delete a rebuild takes another upload of a range than commits did."""
    stream = Stream()
    stream.upload(0, 10, uid=50)
    stream.commit()
    stream.upload(0, 10, uid=3)
    stream.upload_tens(10, 30)
    stream.commit()
    stream.collect(1)

    def rebuilds() -> None:
        # Without a root that can be read, LIST alone decides.
        for key in [key for key in stream.objects if key.endswith(".manifest")]:
            stream.objects[key] = b"damaged"
        rebuild(stream.context(), STREAM, branching=M, dry_run=False)

    with suppress(ConflictError):
        stream.collect(1, store=Tapped(stream.place.store, once_before("put", ".marks", rebuilds)))

    assert stream.root.entries[0].uid == 3
    stream.ends_with((0, 30, 1))


class Remembering:
    """A bucket as a process sees it that has read some objects before."""

    def __init__(self, store: Any, known: Mapping[str, bytes]) -> None:
        self._store, self._known = store, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_all(self, key: str, *, limit: int) -> bytes:
        known = self._known.get(key)
        found: bytes = known if known is not None else self._store.get_all(key, limit=limit)
        return found


def a_collector_runs_while_a_rebuild_works() -> None:
    """4c and 9. What the rebuild has found and not yet committed counts as garbage.

    The collector's process has read the root before that was damaged, and its delete is slow.
    """
    stream = Stream()
    stream.upload(0, 10, uid=50)
    stream.commit()
    stream.upload(0, 10, uid=3)
    stream.upload_tens(10, 30)
    stream.commit()
    stream.collect(1)

    known = dict(stream.objects)
    for key in [key for key in stream.objects if key.endswith(".manifest")]:
        stream.objects[key] = b"damaged"

    sent: list[str] = []

    class Slow:
        def delete(self, keys: Sequence[str]) -> list[str]:
            sent.extend(keys)
            return list(keys)

    def collects() -> None:
        stream.now += 2 * GRACE_MS
        context = stream.context(store=Remembering(stream.place.store, known))
        with suppress(ConflictError):
            collect(
                context,
                Slow(),
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=stream.now,
                now_ms=stream.now,
                held=lambda _: False,
            )

    catalog = Tapped(
        stream.place.catalog, once_before("adopt", "", lambda: stream.place.store.delete(sent))
    )
    store = Tapped(stream.place.store, once_before("put", ".manifest", collects))
    with suppress(ConflictError):
        rebuild(stream.context(catalog=catalog, store=store), STREAM, branching=M, dry_run=False)

    stream.ends_with((0, 30, 1))


# --- 10: tombstones ---


def an_upload_comes_after_the_sweep() -> None:
    """10a. Its agent has not heard of the deletion."""
    stream = Stream()
    stream.upload_tens(0, 40)
    stream.commit()
    late = stream.upload(40, 50)
    data = stream.objects.pop(late.path(PREFIX))
    tombstone = deleting.delete_stream(
        stream.context(), STREAM, PolicySet(), now_ms=stream.now, undelete_ms=GRACE_MS
    )
    stream.now += 2 * GRACE_MS
    for empty in (0, 1):
        _sweep(stream, tombstone.revision, empty=empty)
    assert not stream.objects

    stream.place.store.put(late.path(PREFIX), data, write_id="late")
    try:
        for _ in range(2):
            sweep_stragglers(
                stream.context(),
                stream.place.store,
                STREAM,
                grace_ms=GRACE_MS,
                run_ms=stream.now,
                now_ms=stream.now,
                held=lambda _: False,
            )
            stream.now += GRACE_MS
    except ColdstreamError as exc:
        raise AssertionError(f"what came late belongs to nobody: {exc}") from exc

    assert not stream.objects


def the_directory_of_one_node_is_gone() -> None:
    """10b. Its disk was replaced; the queue is still alive on the other nodes.

    No product code sets a tombstone but `coldstream delete`. So the rule is taken out by an agent
    that takes the missing directory for the word of the cluster, as the draft's did.
    """
    stream = Stream()
    Node(stream, (0, 40, 1)).look()
    node = Node(stream)
    node.follower.log = StreamLog(Path("/nonexistent") / STREAM)
    node.look()

    for empty in (0, 1):
        _sweep(stream, stream.item.revision, empty=empty)

    assert stream.item.state is StreamState.LIVE, "a living stream was deleted"
    stream.ends_with((0, 40, 1))


def _sweep(stream: Stream, revision: int, *, empty: int = 0) -> None:
    """What the workflow of a deletion does once its undelete time is over."""
    with suppress(ConflictError):
        deleting.sweep(
            stream.context(),
            stream.place.store,
            STREAM,
            PolicySet(),
            revision=revision,
            empty=empty,
            now_ms=stream.now,
            time_left=lambda: True,
        )


#: What happened, the rule, and how it ends without it.
HISTORIES = {
    "3a": History(the_item_is_missing_and_an_agent_comes, "anchor-empty", "other chunks"),
    "3b adopted": History(
        a_root_that_misses_a_group_never_landed, "adopt-complete", "no such object"
    ),
    "3b landed": History(a_rebalance_dies_at_any_call, "groups-first", "no such object"),
    "3c commit": History(
        a_warm_process_works_on_a_restored_table, "table-id", "publish_before_delete"
    ),
    "3c sweep": History(a_restored_tombstone_has_expired_meanwhile, "tombstone-table", "DELETED"),
    "4a": History(no_node_refers_to_the_current_root, "item-refers", "no such object"),
    "4b marks": History(
        a_fragment_is_a_year_old_and_unreferenced_since_a_second,
        "two-marks",
        "a reader of a second ago misses",
    ),
    "4b grace": History(
        a_fragment_is_a_year_old_and_unreferenced_since_a_second,
        "grace",
        "a reader of a second ago misses",
    ),
    "4c": History(what_was_garbage_is_live_when_it_is_deleted, "re-read", "publish_before_delete"),
    "4c rebuild": History(
        a_collector_runs_while_a_rebuild_works,
        "rebuild-stops",
        "publish_before_delete",
    ),
    "10a": History(an_upload_comes_after_the_sweep, "tombstone-kept", "belongs to nobody"),
    "10b": History(
        the_directory_of_one_node_is_gone, "tombstone-word", "a living stream was deleted"
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_known_history_of_deletion_ends_well(name: str) -> None:
    HISTORIES[name].story()


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_rule_a_known_history_of_deletion_loses_something(name: str) -> None:
    HISTORIES[name].ends_badly_without_its_rule()
