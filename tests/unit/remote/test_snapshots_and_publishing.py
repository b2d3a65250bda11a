from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from coldstream.errors import ConflictError, CorruptDataError, InternalError, NotFoundError
from coldstream.manifest.catalog import StreamState
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root, parse_root
from coldstream.ports import Catalog, Landed
from coldstream.remote.publish import publish
from coldstream.remote.roots import RootCache, Snapshots, load, load_root
from tests.support.remote import PREFIX, STREAM, Remote, chain


def test_a_stream_before_its_first_root_begins_where_its_log_begins() -> None:
    remote = Remote()
    remote.anchor(1592)

    assert load(remote.context, STREAM).root == Root(1592, 1592)
    assert remote.store.calls["get_all"] == 0


def test_a_root_is_fetched_once_because_roots_never_change() -> None:
    remote = Remote().claimed()
    context = remote.new_context()

    assert load(context, STREAM) == load(context, STREAM)
    assert remote.store.calls["get_all"] == 1


def test_the_cache_of_roots_is_bounded_and_forgets_the_oldest() -> None:
    cache = RootCache(capacity=2)
    for number in range(2):
        cache.put(str(number), Root(number, number))
    cache.get("0")
    cache.put("2", Root(2, 2))

    assert cache.get("1") is None
    assert cache.get("0") == Root(0, 0)
    assert cache.get("2") == Root(2, 2)


def test_a_published_root_is_under_a_key_that_says_epoch_and_version() -> None:
    remote = Remote().claimed(3)
    loaded = load(remote.context, STREAM)

    outcome = publish(remote.context, loaded, loaded.root)

    assert isinstance(outcome, Landed)
    assert "root.0000000003.000000000002." in outcome.item.root_key
    stored = parse_root(remote.tampered()[outcome.item.root_key])
    assert stored == replace(loaded.root, version=2)
    assert load(remote.new_context(), STREAM).root == stored


def test_a_root_is_put_before_the_item_names_it() -> None:
    remote = Remote().claimed()
    loaded = load(remote.context, STREAM)
    seen: list[bool] = []

    def check(commit: object) -> None:
        seen.append(getattr(commit, "root_key", "") in remote.tampered())

    remote.catalog.before["commit"] = check
    publish(remote.context, loaded, loaded.root)

    assert seen == [True]


@pytest.mark.parametrize("lie", [{"version": 9}, {"epoch": 9}, {"next_offset": 9}])
def test_a_root_that_says_other_than_the_item_is_refused(lie: dict[str, int]) -> None:
    remote = Remote().claimed()
    item = replace(remote.items.items[STREAM], **lie)

    with pytest.raises(CorruptDataError) as caught:
        load_root(remote.new_context(), item)

    assert (caught.value.stream, caught.value.key) == (STREAM, item.root_key)


def test_a_root_larger_than_any_root_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote().claimed()
    remote.upload(*chain(1))
    monkeypatch.setattr("coldstream.remote.roots.MAX_ROOT_SIZE", 50)

    with pytest.raises(CorruptDataError):
        load(remote.new_context(), STREAM)


def test_a_restored_item_is_refused_before_its_root_is_read() -> None:
    remote = Remote().claimed()
    remote.items._table_id = "restored"

    with pytest.raises(ConflictError):
        load(remote.new_context(), STREAM)
    assert remote.store.calls["get_all"] == 0


def test_an_item_that_names_the_root_of_another_stream_is_refused() -> None:
    remote = Remote().claimed()
    remote.claimed(stream="__other_1")
    other = remote.items.items["__other_1"]
    remote.items.items[STREAM] = replace(remote.items.items[STREAM], root_key=other.root_key)

    with pytest.raises(CorruptDataError, match="not its own") as caught:
        load(remote.new_context(), STREAM)

    assert (caught.value.stream, caught.value.key) == (STREAM, other.root_key)


def test_an_item_whose_ledger_is_not_that_of_its_root_is_refused() -> None:
    remote = Remote().claimed(3)
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, ledger=Ledger.of([(1, 0), (3, 0)]))

    with pytest.raises(CorruptDataError, match="ledgers differ"):
        load(remote.new_context(), STREAM)


def test_a_root_that_nobody_would_read_is_never_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = Remote().claimed()
    loaded = load(remote.context, STREAM)
    before = dict(remote.tampered())
    monkeypatch.setattr("coldstream.remote.publish.MAX_ROOT_SIZE", 100)

    with pytest.raises(InternalError):
        publish(remote.context, loaded, loaded.root)

    assert remote.tampered() == before


def test_a_reader_whose_root_is_collected_between_its_two_reads_takes_the_newer_one() -> None:
    remote = Remote().claimed()
    old = remote.items.items[STREAM]
    publish(remote.context, load(remote.context, STREAM), load(remote.context, STREAM).root)
    del remote.memory.objects[old.root_key]
    answers = [old]
    catalog = SimpleNamespace(
        get=lambda stream: answers.pop() if answers else remote.items.get(stream)
    )

    found = Snapshots(remote.context.store, cast(Catalog, catalog), PREFIX).load(STREAM)

    assert (found.item.version, found.root.version) == (2, 2)


def test_a_root_that_is_gone_though_the_item_names_it_is_an_error() -> None:
    remote = Remote().claimed()
    del remote.memory.objects[remote.items.items[STREAM].root_key]

    with pytest.raises(NotFoundError):
        Snapshots(remote.context.store, remote.context.catalog, PREFIX).load(STREAM)


@pytest.mark.parametrize("state", [StreamState.DELETING, StreamState.DELETED])
def test_a_root_that_is_gone_with_its_stream_is_said_to_be_of_one_that_was_deleted(
    state: StreamState,
) -> None:
    remote = Remote().claimed()
    item = remote.items.items[STREAM]
    remote.items.items[STREAM] = replace(item, state=state)
    del remote.memory.objects[item.root_key]
    snapshots = Snapshots(remote.context.store, remote.context.catalog, PREFIX)

    for look in (snapshots.load, lambda stream: snapshots.glance(stream).root):
        with pytest.raises(NotFoundError, match="was deleted") as caught:
            look(STREAM)
        assert caught.value.key is None
