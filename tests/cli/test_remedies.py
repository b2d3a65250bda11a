"""What people are told to try: something that can help with the very error."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.adapters.dynamodb_item import parse_item
from coldstream.errors import ColdstreamError, CorruptDataError, LostRangeError
from coldstream.manifest.catalog import QueueName, StreamState
from coldstream.manifest.entries import Entries
from tests.cli.conftest import Run
from tests.support.tier import PREFIX, Tier, chunk


@pytest.fixture
def orders(tier: Tier) -> Tier:
    tier.add("s", [[chunk(0, b"0")], [chunk(1, b"1")]], name=QueueName("c", "/", "orders"))
    return tier


def change(tier: Tier, **changes: Any) -> None:
    tier.catalog.items["s"] = replace(tier.catalog.items["s"], **changes)


def tried(run: Run, *arguments: str) -> str:
    """The last line about a command that fails."""
    done = run(*arguments)
    assert done.exit_code != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("  try: ")
    return str(last)


@pytest.mark.parametrize(
    "command",
    [
        ["repair", "s", "--dry-run"],
        ["erase", "s", "--range", "0..1", "--dry-run"],
        ["retention", "run", "s", "--dry-run"],
        ["delete", "s", "--yes"],
    ],
    ids=lambda each: each[0],
)
def test_a_stream_of_a_restored_table_is_to_be_reconciled(
    orders: Tier, run: Run, command: list[str]
) -> None:
    """`run the command again` would fail for ever."""
    change(orders, table_id="before the restore")

    assert "coldstream reconcile" in tried(run, *command)


def test_a_deletion_is_to_be_called_off_and_one_that_is_over_is_over(
    orders: Tier, run: Run
) -> None:
    change(orders, state=StreamState.DELETING)
    orders.add("__x_7", [[chunk(0, b"0")]], name=QueueName("c", "/", "x"))
    orders.catalog.items["__x_7"] = replace(
        orders.catalog.items["__x_7"], state=StreamState.DELETING
    )
    for command in (["rebuild", "s", "--write", "--wait", "0"], ["rename", "__x_7", "x", "--yes"]):
        assert "coldstream undelete" in tried(run, *command)
    change(orders, state=StreamState.DELETED)
    assert "directory of its own" in tried(run, "rebuild", "s")


def test_a_directory_that_is_no_broker_s_is_to_be_given_otherwise(
    orders: Tier, run: Run, tmp_path: Path
) -> None:
    for place in (tmp_path, tmp_path / "none"):
        assert "--from-dir" in tried(run, "repair", "s", "--from-dir", str(place))


def test_a_broker_that_does_not_answer_has_nothing_to_do_with_aws(orders: Tier, run: Run) -> None:
    said = tried(run, "delete", "--gone", "--management-uri", "http://u:p@127.0.0.1:1", "--yes")

    assert "rabbitmq_management" in said
    assert "AWS" not in said


def test_an_item_of_a_later_release_is_not_to_be_verified_by_this_one() -> None:
    """`verify` would fail as every other command does."""
    with pytest.raises(CorruptDataError) as caught:
        parse_item({}, PREFIX)

    assert "release" in str(caught.value.remedy)


def test_an_error_has_the_remedy_that_it_was_raised_with() -> None:
    assert LostRangeError("gone", remedy="look").remedy == "look"
    assert ColdstreamError("gone").remedy is None


@pytest.mark.parametrize("kind", ["jsonl", "segments"])
def test_a_copy_that_retention_has_overtaken_is_gone_on_with_in_another_directory(
    tier: Tier, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """`read on after it` cannot be done in that one: it takes no other --from."""
    root = tier.add("s", [[chunk(n, b"%d" % n)] for n in range(6)])
    words = ("export", "s", "--format", kind, "--to")
    if kind == "jsonl":
        assert run(*words, str(tmp_path / "a"), "--until", "2").exit_code == 0
    else:
        with monkeypatch.context() as killed:
            killed.setattr("coldstream.copies.restore._write", lambda *_: sys.exit(9))
            run(*words, str(tmp_path / "a"))
    tier.commit("s", replace(root, first_offset=4, entries=Entries.of(list(root.entries)[4:])))

    said = tried(run, *words, str(tmp_path / "a"))

    assert "another directory" in said
    assert said.endswith("--from 4")
    assert run(*words, str(tmp_path / "a"), "--from", "4").exit_code == 2
    assert run(*words, str(tmp_path / "b"), "--from", "4").exit_code == 0
