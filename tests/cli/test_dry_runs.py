"""Plans that are made here, with rights to read and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import Result

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.adapters.place import Place, Remote
from coldstream.cli.read_only import read_only
from coldstream.errors import CorruptDataError, InternalError
from coldstream.manifest.catalog import CatalogItem, QueueName, StreamState
from coldstream.manifest.entries import Entries, Entry, EntryKind
from coldstream.manifest.ledger import Ledger
from coldstream.manifest.root import Root
from coldstream.plans.policy import Rule
from coldstream.ports import CatalogPage
from coldstream_devkit.fragments import build_fragment
from tests.cli.conftest import Machines
from tests.support.tier import PREFIX, Tier, chunk

Run = Callable[..., Result]
DAY = 86_400_000
NOW = time.time_ns() // 1_000_000
#: Every dry run there is.
DRY = [
    ["rebalance", "s", "--dry-run", "--branching", "2"],
    ["rebuild", "s", "--branching", "2"],
    ["rebuild", "s", "--no-trailers"],
    ["retention", "plan"],
    ["retention", "plan", "s"],
    ["retention", "run", "--dry-run"],
    ["retention", "run", "s", "--dry-run"],
    ["consolidate", "--dry-run", "--fragment-size", "100000"],
    ["consolidate", "s", "--dry-run", "--fragment-size", "100000"],
    ["collect"],
    ["collect", "s"],
    ["collect", "--dry-run", "--grace", "0"],
    ["reconcile", "--dry-run"],
    ["reconcile", "s", "--dry-run"],
    ["delete", "s", "--dry-run"],
    ["erase", "s", "--range", "0..1", "--dry-run"],
    ["undelete", "deleting", "--dry-run"],
    ["retention", "hold", "s", "--dry-run"],
    ["retention", "release", "s", "--dry-run"],
    ["restore", "s", "--to", "/nowhere", "--dry-run"],
]


class Refusing:
    """A tier that answers questions, and fails the test at every attempt to change it."""

    def __init__(self, target: Any, *reads: str) -> None:
        self._target = target
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._target, name):
            raise AttributeError(name)
        assert name in self._reads, f"a dry run called {name}"
        return getattr(self._target, name)


@pytest.fixture
def full(tier: Tier, put_rules: Callable[..., None]) -> Tier:
    """Every dry run has something to say of this tier."""
    groups = [[chunk(n, b"x" * 50, timestamp=NOW - (20 - n) * DAY)] for n in range(20)]
    tier.add_tree("s", groups)
    tier.catalog.set_name("s", QueueName("c", "/", "orders"))
    tier.upload("s", [chunk(20, b"ahead")], epoch=1, floor=0)
    tier.upload("s", [chunk(3, b"garbage")], epoch=1, floor=0)
    for name, state in (("deleting", StreamState.DELETING), ("deleted", StreamState.DELETED)):
        tier.add(name, [[chunk(0, b"x")]])
        tier.catalog.items[name] = replace(
            tier.catalog.items[name], state=state, revision=1, undelete_until=NOW + DAY
        )
    tier.add("held", [[chunk(n, b"x", timestamp=1)] for n in range(3)])
    put_rules(Rule("default", max_age_ms=10 * DAY), Rule("case", directory="held", hold=True))
    return tier


@pytest.mark.parametrize("command", DRY, ids=" ".join)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_dry_run_writes_nothing_and_starts_nothing(
    full: Tier, run: Run, machines: Machines, policies: Any, command: list[str], as_json: list[str]
) -> None:
    objects, items, rules = dict(full.store.objects), dict(full.catalog.items), policies.load()
    store, catalog = full.store, full.catalog
    full.store = Refusing(store, "get", "get_all", "get_suffix", "list", "level")
    full.catalog = Refusing(catalog, "table_id", "get", "streams", "page", "cursor_at")  # type: ignore[assignment]

    first, second = run(*command, *as_json), run(*command, *as_json)

    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert not machines.executions
    assert (store.objects, catalog.items, policies.load()) == (objects, items, rules)
    if as_json:
        assert json.loads(first.stdout) is not None


def test_the_guard_refuses_every_way_to_write() -> None:
    store, catalog = MemoryObjectStore(), MemoryCatalog()
    context, guard = read_only(Remote(store, catalog, None, Place("b", "t", PREFIX)))  # type: ignore[arg-type]
    item = CatalogItem("s", "memory")
    anything: Any = item

    for attempt in (
        lambda: context.store.put("k", b"", write_id=""),
        lambda: guard.delete(["k"]),
        lambda: guard.compose("k", [], write_id=""),
        lambda: context.catalog.anchor(item),
        lambda: context.catalog.adopt(item, replacing=None),
        lambda: context.catalog.commit(anything),
        lambda: context.catalog.change_state(anything),
        lambda: context.catalog.set_name("s", QueueName()),
    ):
        with pytest.raises(InternalError, match="dry run"):
            attempt()
    assert (store.objects, catalog.items) == ({}, {})


def test_rebalance_says_which_groups_it_would_make(full: Tier, run: Run) -> None:
    table = run("rebalance", "//orders", "--dry-run", "--branching", "2")
    document = json.loads(run("rebalance", "s", "--dry-run", "--branching", "2", "--json").stdout)

    header, *rows = [line.split("\t") for line in table.stdout.splitlines()]
    assert header == ["kind", "first", "next", "fragments", "bytes"]
    assert [row[0] for row in rows] == ["group", "kilo_group"]
    assert f"{document['entries_before']} entries in the root now" in table.stderr
    assert document["entries_after"] < document["entries_before"]


@pytest.mark.parametrize("branching", ["1", "4097", "x"])
def test_a_branching_that_no_stack_has_is_refused(full: Tier, run: Run, branching: str) -> None:
    assert run("rebalance", "s", "--dry-run", "--branching", branching).exit_code == 2


def test_reconcile_lists_uploads_ahead_and_fragments_that_it_would_refuse(
    full: Tier, run: Run
) -> None:
    bad = full.upload("held", [chunk(3, b"x")], epoch=1, floor=0)
    key = bad.data_key("held").path(PREFIX)
    full.flip(key, len(full.store.objects[key]) - 5)

    rows = json.loads(run("reconcile", "--dry-run", "--json").stdout)
    table = run("reconcile", "--dry-run")

    found = {row["stream"]: row for row in rows}
    assert found.keys() == {"s", "held"}
    assert (found["s"]["first"], found["s"]["next"], found["s"]["fragments"]) == (20, 21, 1)
    assert (found["held"]["fragments"], found["held"]["refused"][0]["key"]) == (0, key)
    assert key in table.stderr
    assert "1 stream with uploads ahead" in table.stderr


def test_reconcile_marks_streams_whose_item_was_lost_or_restored(
    full: Tier, run: Run, machines: Machines
) -> None:
    del full.catalog.items["held"]
    full.catalog.items["s"] = replace(full.catalog.items["s"], table_id="before the restore")

    rows = {row["stream"]: row for row in json.loads(
        run("reconcile", "--dry-run", "--json").stdout)}  # fmt: skip

    assert {name: row["adopt"] for name, row in rows.items()} == {"s": True, "held": True}
    assert run("reconcile", "held").exit_code == 0
    assert machines.inputs[next(iter(machines.inputs))]["work"] == [{"stream": "held"}]


def test_consolidate_says_how_many_fragments_would_become_one(tier: Tier, run: Run) -> None:
    root = add_cut(tier, "s", pieces=20)

    row = json.loads(run("consolidate", "s", "--dry-run", "--json").stdout)[0]
    every = json.loads(run("consolidate", "--dry-run", "--json").stdout)

    # The last run may still grow, so it needs eight pieces, which it has.
    assert (row["merges"], row["pieces"]) == (1, 20)
    assert 0 < row["bytes"] < root.total_size
    assert every == [row]


def test_consolidate_says_that_a_rule_switches_it_off(
    full: Tier, run: Run, put_rules: Callable[..., None]
) -> None:
    put_rules(Rule("off", consolidate=False))

    one, every = run("consolidate", "s", "--dry-run"), run("consolidate", "--dry-run", "--json")

    assert "\toff" in one.stdout
    assert "a rule switches it off" in one.stderr
    assert json.loads(every.stdout) == []


def test_consolidate_names_the_piece_that_cannot_be_read(tier: Tier, run: Run) -> None:
    root = add_cut(tier, "s", pieces=20)
    key = tier.key(root, "s", 10)
    tier.store.objects[key] = tier.store.objects[key][:-3]

    done = run("consolidate", "s", "--dry-run")

    assert done.exit_code == 0
    assert key in done.stderr


def test_collect_prints_every_kind_with_its_meaning_and_what_can_be_proved(
    full: Tier, run: Run
) -> None:
    full.store.put(f"{PREFIX}stream/s/data/notes.txt", b"mine", write_id="")

    done = run("collect", "s")
    row = json.loads(run("collect", "s", "--json").stdout)[0]

    assert row["found"].keys() == {"referenced", "pending", "superseded", "old_root", "foreign"}
    assert row["found"]["foreign"]["meaning"] == "its key is not one of ours: never touched"
    assert row["foreign"] == [f"{PREFIX}stream/s/data/notes.txt"]
    garbage = [each for each in row["found"].values() if each["garbage"]]
    assert row["waiting"]["objects"] == sum(each["objects"] for each in garbage) == 2
    assert row["provable"] == {"objects": 0, "bytes": 0}
    assert "the manifest refers to it" in done.stdout
    assert "2 objects of garbage" in done.stderr
    assert "foreign: " in done.stderr


def test_collect_knows_what_is_left_of_a_deleted_stream(full: Tier, run: Run) -> None:
    row = json.loads(run("collect", "deleted", "--json").stdout)[0]

    assert row["found"].keys() == {"straggler"}
    # No run of `collect` has seen them yet.
    assert row["waiting"]["objects"] == row["found"]["straggler"]["objects"] == 2
    assert row["provable"]["objects"] == 0


def test_collect_does_not_take_delete_and_dry_run_at_once(
    full: Tier, run: Run, machines: Machines
) -> None:
    assert run("collect", "--delete", "--dry-run").exit_code == 2
    assert not machines.executions


@pytest.mark.parametrize("command", [["collect"], ["retention", "plan"]])
def test_one_damaged_stream_ends_a_plan_over_all_with_its_error_after_the_others(
    full: Tier, run: Run, put_rules: Callable[..., None], command: list[str]
) -> None:
    put_rules(Rule("default", max_bytes=1))
    full.flip(full.catalog.items["held"].root_key, 40)

    done = run(*command, "--json")

    assert done.exit_code == 65
    assert "s" in [row["stream"] for row in json.loads(done.stdout)]
    assert "stream held" in done.stderr


@pytest.mark.parametrize(
    "command", [["collect"], ["retention", "plan"], ["reconcile", "--dry-run"]]
)
def test_an_item_that_cannot_be_read_ends_a_plan_over_all_with_65(
    full: Tier, run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = full.catalog.page

    def damaged(cursor: str | None, limit: int, *, fresh: bool = True) -> CatalogPage:
        return replace(
            page(cursor, limit, fresh=fresh), damaged=(CorruptDataError("odd", stream="odd"),)
        )

    monkeypatch.setattr(full.catalog, "page", damaged)

    done = run(*command)

    assert done.exit_code == 65
    assert "stream odd" in done.stderr


@pytest.mark.parametrize("command", [["collect"], ["reconcile", "--dry-run"],
                                     ["retention", "plan"]])  # fmt: skip
def test_a_plan_over_all_looks_at_every_page(
    tier: Tier,
    run: Run,
    put_rules: Callable[..., None],
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_rules(Rule("short", max_bytes=1))
    names = {f"s{number}" for number in range(7)}
    for name in names:
        tier.add(name, [[chunk(0, b"x")], [chunk(1, b"x")]])
        tier.upload(name, [chunk(2, b"ahead")], epoch=1, floor=0)
    monkeypatch.setattr("coldstream.usecases.scan.PAGE", 3)
    monkeypatch.setattr("coldstream.cli.over_streams._PAGE", 2)

    rows = json.loads(run(*command, "--json").stdout)

    # Each once; `collect` begins elsewhere each time, so that none starves.
    assert sorted(row["stream"] for row in rows) == sorted(names)


def test_a_foreign_key_cannot_drive_a_terminal(full: Tier, run: Run) -> None:
    full.store.put(f"{PREFIX}stream/s/data/\x1b[2Jodd", b"", write_id="")

    done = run("collect", "s")

    assert "\x1b" not in done.stderr
    assert "\\x1b[2Jodd" in done.stderr


def test_an_empty_tier_has_nothing_to_plan(run: Run) -> None:
    for command in (each for each in DRY if not {"s", "deleting"} & set(each)):
        done = run(*command, "--json")

        assert (done.exit_code, json.loads(done.stdout)) == (0, [])
        assert run(*command).exit_code == 0


def add_cut(tier: Tier, stream: str, *, pieces: int) -> Root:
    """A stream whose one segment was cut into pieces, each placed as an agent would place it."""
    tier.catalog.anchor(CatalogItem(stream, tier.catalog.table_id()))
    position, entries = 8, []
    for number in range(pieces):
        made = build_fragment(
            20 * number,
            20 * number + 20,
            stream=stream,
            uid=number + 1,
            segment_offset=0,
            segment_position=position,
        )
        position += len(made.chunks)
        tier.store.put(made.path(PREFIX), made.data, write_id="")
        trailer = made.trailer
        entries.append(
            Entry(
                trailer.first_offset, trailer.next_offset, trailer.min_timestamp,
                trailer.max_timestamp, EntryKind.FRAGMENT, len(made.data), trailer.records, 1,
                number + 1,
            )
        )  # fmt: skip
    return tier.commit(
        stream,
        Root(
            first_offset=0,
            next_offset=20 * pieces,
            epoch=1,
            ledger=Ledger.of([(1, 0)]),
            entries=Entries.of(entries),
        ),
    )


def test_a_rebuild_that_writes_says_so_and_the_stream_is_live_again(run: Run, tier: Tier) -> None:
    tier.add("s", [[chunk(n, b"x")] for n in range(5)])
    before = tier.catalog.items["s"]

    dry = run("rebuild", "s")
    done = run("rebuild", "s", "--write", "--wait", "0", "--json")

    assert (dry.exit_code, done.exit_code) == (0, 0)
    assert "nothing was changed" in dry.stderr
    after = tier.catalog.items["s"]
    assert json.loads(done.stdout)["landed"] is True
    assert (after.state, after.next_offset) == (StreamState.LIVE, before.next_offset)
    assert after.version == before.version + 1


@pytest.mark.parametrize("name", ["../x", "", "__nobody_1"])
def test_a_rebuild_of_nothing_is_a_clear_error(run: Run, name: str) -> None:
    done = run("rebuild", name)

    assert done.exit_code in (2, 66)
    assert "Traceback" not in done.stderr
