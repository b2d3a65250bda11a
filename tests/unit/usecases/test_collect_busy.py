"""Collect beside commits that keep coming: it ends, it deletes, and its proof stays a proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.errors import ConflictError
from coldstream.manifest.catalog import CatalogItem, StreamState
from coldstream.manifest.entries import Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.names import RootKey, metadata_prefix, root_path
from coldstream.plans.collect import ObjectKind, survives
from coldstream.plans.collect_order import ListPosition, Phase
from coldstream.plans.substitute import substitute
from coldstream.remote.context import Context
from coldstream.remote.publish import publish
from coldstream.remote.roots import load
from coldstream.usecases.classify import Classifier
from coldstream.usecases.collect import Collection, collect
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.references import list_roots, list_roots_from
from coldstream_devkit.claims import claim
from tests.support.remote import PREFIX, STREAM, Remote, log_of, no_pause, piece
from tests.unit.usecases.test_collect import GRACE, Tier


class Busy(Tier):
    """A stream on which something happens whenever `collect` looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 120
        self.uid = 5000

    def another_commit(self) -> None:
        self.uid += 1
        self.upload(piece(self.at, self.at + 10, uid=self.uid))
        self.at += 10
        commit_runs(Remote.new_context(self), STREAM, pause=no_pause)

    def with_garbage(self, *double: tuple[int, int]) -> list[str]:
        """Second uploads of ranges, seen once, and a grace time ago."""
        paths = self.upload(*(piece(a, b, uid=900 + a) for a, b in double))
        self.now += 2 * GRACE
        self.collect()
        self.now += 2 * GRACE
        return paths


def whenever(target: Any, name: str, act: Callable[[], None], *, when: str = "") -> Any:
    """`target`, but that `act` happens after each call of `name` (on a key that holds `when`)."""

    class Watched:
        def __getattr__(self, attribute: str) -> Any:
            method = getattr(target, attribute)
            if attribute != name:
                return method

            def call(*args: Any, **kwargs: Any) -> Any:
                answer = method(*args, **kwargs)
                if when in str(args[0]):
                    act()
                return answer

            return call

    return Watched()


def step(tier: Tier, context: Context, **more: Any) -> Collection:
    return collect(
        context,
        tier.memory,
        STREAM,
        grace_ms=GRACE,
        run_ms=tier.now,
        now_ms=tier.now,
        held=lambda _: False,
        **more,
    )


@pytest.mark.parametrize(
    ("what", "name", "when"),
    [
        ("catalog", "get", ""),
        ("store", "list", "root."),
        ("store", "list", ""),
        ("store", "get_all", ""),
    ],
)
@pytest.mark.parametrize("in_time", [True, False])
def test_a_stream_that_commits_whenever_it_is_looked_at_loses_its_garbage(
    what: str, name: str, when: str, in_time: bool
) -> None:
    tier = Busy()
    (double,) = tier.with_garbage((0, 10))
    context = tier.new_context()
    watched = whenever(getattr(tier, what), name, tier.another_commit, when=when)

    report = step(tier, replace(context, **{what: watched}), time_left=lambda: in_time)

    assert report.deleted[ObjectKind.OLD_ROOT].objects > 0
    if in_time:
        assert double not in tier.memory.objects
        assert report.cursor is None
    assert not report.busy.objects


def test_the_proof_is_made_again_without_a_list_of_the_roots() -> None:
    tier = Busy()
    tier.with_garbage((0, 10), (20, 30))
    context = tier.new_context()
    watched = whenever(tier.catalog, "get", tier.another_commit)
    lists: list[str] = []
    store = whenever(tier.store, "list", lambda: lists.append(""), when="/metadata/root.")

    step(tier, replace(context, catalog=watched, store=store))

    assert len(lists) == 1


def test_a_claim_whenever_it_is_looked_at_puts_a_batch_off_and_ends() -> None:
    tier = Busy()
    (double,) = tier.with_garbage((0, 10))
    epoch = [1]

    def another_claim() -> None:
        epoch[0] += 1
        context = Remote.new_context(tier)
        claim(context, STREAM, epoch[0], log=log_of(piece(110, 120)), pause=no_pause)

    watched = whenever(tier.catalog, "get", another_claim)

    report = step(tier, replace(tier.new_context(), catalog=watched))

    assert double in tier.memory.objects
    assert report.busy.objects > 0
    assert not report.deleted
    tier.settle()
    assert double not in tier.memory.objects


def test_a_copy_of_what_a_repair_gives_up_meanwhile_is_kept() -> None:
    tier = Busy()
    (double,) = tier.with_garbage((0, 10))

    def give_up() -> None:
        context = Remote.new_context(tier)
        loaded = load(context, STREAM)
        (bad, *_) = [each for each in loaded.root.entries if each.first_offset == 0]
        if bad.kind is EntryKind.HOLE:
            return
        hole = Entry(0, 10, bad.max_timestamp, bad.max_timestamp, EntryKind.HOLE, 0, 0, 1, 77)
        context.store.put(hole.data_key(STREAM).path(PREFIX), b"", write_id="h")
        changed = substitute(
            loaded.root,
            {bad: (hole,)},
            branching=4,
            fetch=context.fetch(STREAM),
            uids=iter(range(9)),
        )
        publish(context, loaded, changed.root, nodes=changed.nodes)

    watched = whenever(tier.store, "put", give_up, when="collect.")

    report = step(tier, replace(tier.new_context(), store=watched))

    assert double in tier.memory.objects
    assert ObjectKind.SUPERSEDED not in report.deleted


def test_a_change_of_the_state_between_proof_and_delete_stops_the_step() -> None:
    tier = Busy()
    (double,) = tier.with_garbage((0, 10))
    reads = [0]

    def undeleted() -> None:
        reads[0] += 1
        if reads[0] == 2:
            item = tier.items.items[STREAM]
            tier.items.items[STREAM] = replace(item, revision=item.revision + 2, state_token=9)

    watched = whenever(tier.catalog, "get", undeleted)

    tier.another_commit()
    with pytest.raises(ConflictError):
        step(tier, replace(tier.new_context(), catalog=watched))
    assert double in tier.memory.objects


BEFORE = CatalogItem(
    STREAM, "table", version=7, epoch=3, first_offset=50, next_offset=90, revision=2, state_token=5,
    ledger=Ledger.of([(1, 0), (2, 40), (3, 60)]),
)  # fmt: skip


@pytest.mark.parametrize(
    "now",
    [
        {"version": 8},
        {"version": 9, "next_offset": 200, "fragments": 9, "uid": 4},
        {"version": 9, "first_offset": 60, "ledger": Ledger.of([(2, 40), (3, 60)])},
        {"version": 9, "total_size": 5, "last_timestamp": 99},
    ],
)
def test_appends_retention_and_swaps_leave_garbage_what_was_garbage(now: dict[str, Any]) -> None:
    assert survives(BEFORE, replace(BEFORE, **now))


@pytest.mark.parametrize(
    "now",
    [
        {"table_id": "restored"},
        {"state": StreamState.REBUILDING},
        {"revision": 4},
        {"state_token": 6},
        {"version": 6},
        {"epoch": 4},
        {"epoch": 2},
        {"ledger": Ledger.of([(1, 0), (2, 40), (3, 50)])},
        {"ledger": Ledger.of([(1, 0), (2, 40), (3, 60), (4, 70)])},
        {"ledger": Ledger.of([(1, 0), (3, 60)])},
        {"first_offset": 49},
        {"next_offset": 89},
    ],
)
def test_what_else_may_have_happened_asks_for_the_whole_proof(now: dict[str, Any]) -> None:
    assert not survives(BEFORE, replace(BEFORE, **{"version": 8, **now}))


def test_another_quarantine_record_asks_for_the_whole_proof() -> None:
    tier = Busy()
    loaded = load(tier.context, STREAM)
    classifier = Classifier(tier.context, loaded)
    tier.another_commit()
    later = load(tier.context, STREAM)

    assert classifier.renewed(later) is not None
    assert classifier.renewed(replace(later, root=replace(later.root, quarantine_key="q"))) is None


def test_a_root_that_may_be_adopted_keeps_what_it_names_through_a_renewed_proof() -> None:
    tier = Busy()
    (double,) = tier.with_garbage((0, 10))
    context = Remote.new_context(tier)
    loaded = load(context, STREAM)
    row = next(row for row in tier.memory.list(double, limit=1))
    names_it = replace(loaded.root.entries[0], uid=900, size=row.size)
    rival = substitute(
        loaded.root, {loaded.root.entries[0]: (names_it,)}, branching=100,
        fetch=context.fetch(STREAM), uids=iter(range(9)),
    ).root  # fmt: skip
    path = root_path(PREFIX, STREAM, 1, loaded.item.version + 50, 1)
    tier.memory.put(path, replace(rival, version=loaded.item.version + 50).encode(), write_id="r")
    watched = whenever(tier.catalog, "get", tier.another_commit)

    step(tier, replace(tier.new_context(), catalog=watched))

    assert double in tier.memory.objects


@pytest.mark.parametrize("page_size", [1, 3, 1000])
@pytest.mark.parametrize("version", [0, 5, 17, 30, 99])
def test_the_roots_from_a_version_on_are_exactly_those(version: int, page_size: int) -> None:
    store = MemoryObjectStore()
    context = replace(Remote().context, store=store, page_size=page_size)  # type: ignore[arg-type]
    versions = {1: range(1, 12), 2: range(12, 31), 4: range(29, 33), 7: (5, 40)}
    for epoch, numbers in versions.items():
        for number in numbers:
            store.put(root_path(PREFIX, STREAM, epoch, number, number), b"", write_id="w")
    under = f"{metadata_prefix(PREFIX, STREAM)}root."
    for odd in ("", "/", "~", "0000000002.x", "0000000002.000000000013.x", "0000000001/../x"):
        store.put(under + odd, b"", write_id="w")
    expected = [each for each in list_roots(context, STREAM) if each.key.version >= version]

    assert list(list_roots_from(context, STREAM, version)) == expected
    assert all(isinstance(each.key, RootKey) for each in expected)


def test_older_roots_are_passed_over_and_not_listed() -> None:
    remote = Remote().claimed()
    for number in range(2, 400):
        path = root_path(PREFIX, STREAM, 1, number, number)
        remote.memory.put(path, b"", write_id="w")
    context = replace(remote.new_context(), page_size=10)
    remote.store.calls.clear()

    assert [each.key.version for each in list_roots_from(context, STREAM, 398)] == [398, 399]
    assert remote.store.calls["list"] == 2


@pytest.mark.parametrize("start", ["", "rabbitmq/stream/a/data/\n:@9:/"])
@pytest.mark.parametrize("after", ["", "x", ":", "@3:rest:\x01"])
@pytest.mark.parametrize("phase", list(Phase))
def test_a_cursor_says_where_a_run_was_whatever_the_keys_are(
    phase: Phase, after: str, start: str
) -> None:
    place = ListPosition(phase, after, start)

    assert ListPosition.parse(place.text) == place


@pytest.mark.parametrize("cursor", [None, "", "x", "x:y", "rest@z:k", "rest@-1:k", "rest@1"])
def test_what_is_no_cursor_begins_anew(cursor: str | None) -> None:
    assert ListPosition.parse(cursor) is None


@pytest.mark.parametrize("run", range(8))
@pytest.mark.parametrize("page_size", [2, 5, 1000])
def test_a_run_over_a_long_stream_sees_each_object_once_wherever_it_begins(
    run: int, page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.usecases.collect.MAX_CANDIDATES", 10)
    monkeypatch.setattr("coldstream.usecases.collect._ROWS_AT_ONCE", 3)
    tier = Tier()
    tier.upload(*(piece(n * 10, n * 10 + 10, uid=400 + n) for n in range(12)))
    tier.memory.put(f"{PREFIX}stream/{STREAM}/odd", b"", write_id="w")
    tier.now += run
    context = replace(tier.new_context(), page_size=page_size)
    ticks = iter(range(10_000))
    found: dict[str, int] = {}
    cursor: str | None = None
    first = ""
    for _ in range(200):
        report = step(tier, context, dry_run=True, cursor=cursor,
                      time_to_list=lambda: next(ticks) % 3 > 0)  # fmt: skip
        for kind, count in report.found.items():
            found[kind] = found.get(kind, 0) + count.objects
        cursor = report.cursor
        if cursor is None:
            break
        first = first or cursor

    assert cursor is None
    assert (
        found[ObjectKind.REFERENCED],
        found[ObjectKind.SUPERSEDED],
        found[ObjectKind.FOREIGN],
    ) == (13, 12, 1)


def test_runs_over_a_long_stream_begin_at_different_places() -> None:
    from coldstream.plans.collect_order import draw

    assert len({draw(STREAM, run) % 10 for run in range(100)}) == 10
