"""`coldstream rename`: which queue a directory is, where an agent was wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.adapters.place import Place, Remote
from coldstream.cli import options
from coldstream.cli.exit_codes import ExitCode
from coldstream.cli.main import app
from coldstream.manifest.catalog import CatalogItem, QueueName, StateChange, StreamState

DIRECTORY = "__or_d_1745252105682952932"
Run = Callable[..., Result]


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    name = QueueName("c", "/", "or.d", "all", "1")
    made.anchor(CatalogItem(DIRECTORY, made.table_id(), name=name))
    return made


@pytest.fixture
def run(catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> Run:
    place = Place("b", "t", "rabbitmq/")
    remote = Remote(MemoryObjectStore(), catalog, None, place)  # type: ignore[arg-type]
    monkeypatch.setattr(options, "connect", lambda **_: remote)
    return lambda *arguments: CliRunner().invoke(app, ["rename", *arguments])


def name_of(catalog: MemoryCatalog) -> QueueName:
    item = catalog.get(DIRECTORY)
    assert item is not None
    return item.name


@pytest.mark.parametrize("stream", [DIRECTORY, "//or.d", "or.d"])
def test_a_stream_gets_the_name_that_is_given_and_is_no_partition_of_the_other_queue_s(
    run: Run, catalog: MemoryCatalog, stream: str
) -> None:
    result = run(stream, "or_d", "--yes", "--json")

    assert json.loads(result.stdout) == {
        "stream": DIRECTORY, "old": "//or.d", "new": "//or_d", "done": True,
    }  # fmt: skip
    assert name_of(catalog) == QueueName("c", "/", "or_d")


def test_nothing_is_changed_without_a_yes_and_in_a_dry_run(
    run: Run, catalog: MemoryCatalog
) -> None:
    assert run(DIRECTORY, "or_d").exit_code == ExitCode.USAGE
    result = run(DIRECTORY, "or_d", "--yes", "--dry-run", "--json")
    assert json.loads(result.stdout)["done"] is False
    assert "nothing was changed" in result.stderr
    assert name_of(catalog).queue == "or.d"


@pytest.mark.parametrize(
    "arguments", [("orders",), ("or_d", "--vhost", "other"), ("",), ("or_d_1",)]
)
def test_a_name_for_which_no_broker_makes_this_directory_is_refused(
    run: Run, catalog: MemoryCatalog, arguments: tuple[str, ...]
) -> None:
    result = run(DIRECTORY, *arguments, "--yes")
    assert result.exit_code == ExitCode.USAGE
    assert DIRECTORY in result.stderr
    assert name_of(catalog).queue == "or.d"


def test_a_stream_that_is_being_deleted_keeps_its_name(run: Run, catalog: MemoryCatalog) -> None:
    item = catalog.get(DIRECTORY)
    assert item is not None
    catalog.change_state(
        StateChange(
            stream=DIRECTORY,
            table_id=item.table_id,
            read_revision=item.revision,
            read_state=item.state,
            state=StreamState.DELETING,
            uid=7,
            undelete_until=1,
        )
    )
    result = run(DIRECTORY, "or_d", "--yes")
    assert result.exit_code == ExitCode.TRY_AGAIN
    assert name_of(catalog).queue == "or.d"
