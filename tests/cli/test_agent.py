"""`coldstream agent run` where local retention beat the upload."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore, MemoryPolicies
from coldstream.adapters.place import Place, Remote
from coldstream.agent.host import ThisMachine
from coldstream.cli import agent as module
from coldstream.cli import options
from coldstream.cli.main import app
from coldstream.errors import InvalidInputError
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import commit_runs
from coldstream_devkit.generator import write_stream

STREAM = "__orders_1745252105682952932"


class Site:
    """A data directory and a remote tier, whose events always come."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.memory = MemoryObjectStore()
        self.catalog = MemoryCatalog()
        self.uids = iter(range(1, 10**6))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def put(self, key: str, body: Any, *, write_id: str, crc: int | None = None) -> None:
        self.memory.put(key, body, write_id=write_id, crc=crc)
        if key.endswith((".fragment", ".hole")):
            context = Context(self.memory, self.catalog, "rabbitmq/", lambda: next(self.uids))
            commit_runs(context, STREAM, pause=lambda _: None)

    def run(self, *options: str) -> Result:
        args = ["agent", "run", "--data-dir", str(self.directory), "--committed", "all"]
        return CliRunner().invoke(app, [*args, "--once", "--json", "--uploads", "1", *options])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(tmp_path)
    remote = Remote(site, site.catalog, MemoryPolicies(), Place("b", "t"))
    monkeypatch.setattr(options, "connect", lambda **_: remote)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    write_stream(tmp_path / STREAM, messages=100, chunk_messages=10)
    assert site.run().exit_code == 0
    shutil.rmtree(tmp_path / STREAM)
    write_stream(tmp_path / STREAM, messages=50, chunk_messages=10, start_offset=150)
    return site


def test_a_lost_range_stops_the_stream_and_the_message_tells_the_remedy(site: Site) -> None:
    result = site.run()

    (row,) = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code != 0
    assert row["error"]["kind"] == "lost_range"
    assert "--last-copy" in row["error"]["message"]
    assert row["holes"] == []


def test_a_range_that_is_given_up_is_told_once_and_loudly(site: Site) -> None:
    result = site.run("--last-copy")

    (row,) = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0
    assert (row["next"], row["error"]) == (200, None)
    assert row["holes"] == [{"first": 100, "next": 150}]
    assert result.stderr.count("WARNING: offsets 100 to 149 are lost") == 1
    assert "offsets 100 to 149 are lost" in row["notices"][0]
    assert json.loads(site.run().stdout.splitlines()[-1])[0]["holes"] == []


@pytest.mark.parametrize("field", ["cluster", "vhost", "queue"])
@pytest.mark.parametrize(("name", "why"), [("q" * 256, "256 characters"), ("\ud800", "surrogate")])
def test_a_name_that_no_catalog_item_can_hold_is_refused_before_anything_is_uploaded(
    tmp_path: Path, field: str, name: str, why: str
) -> None:
    said = {"cluster": "c", "vhost": "/", "queue": "q", field: name}
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"__orders_1": {"vhost": said["vhost"], "queue": said["queue"]}}))

    with pytest.raises(InvalidInputError, match=f"{field}.*{why}") as caught:
        module.read_names(path, said["cluster"])

    assert caught.value.key == str(path)
    assert (caught.value.stream, len(str(caught.value)) < 300) == ("__orders_1", True)


def test_names_of_every_length_that_an_item_can_hold_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"__orders_1": {"vhost": "é" * 255, "queue": "q" * 255}}))

    assert len(module.read_names(path, "c" * 255)["__orders_1"].vhost) == 255


@pytest.mark.parametrize(
    "options",
    [
        ("--fragment-size", "nan"),
        ("--fragment-size", "0"),
        ("--fragment-size", "64MB"),
        ("--flush", "inf"),
        ("--flush", "-1"),
        ("--memory", "999999999TiB"),
    ],
)
def test_a_size_or_a_time_that_is_no_number_is_refused(site: Site, options: tuple[str]) -> None:
    ended = site.run(*options)

    assert ended.exit_code == 2
    assert options[0] in ended.stderr


def test_an_empty_data_directory_is_not_the_working_directory(site: Site) -> None:
    ended = site.run("--data-dir", "")

    assert ended.exit_code == 2
    assert "--data-dir is empty" in ended.stderr


def test_an_entry_without_a_directory_is_warned_of_once(site: Site, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / STREAM)
    write_stream(tmp_path / STREAM, messages=100, chunk_messages=10)
    offsets = tmp_path.parent / f"{tmp_path.name}.json"
    offsets.write_text(json.dumps({STREAM: 99, "__gone_1": 5}))

    ended = site.run("--committed", str(offsets))

    assert ended.exit_code == 0, ended.output
    assert ended.stderr.count("__gone_1") == 1
    assert "WARNING" in ended.stderr


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (PermissionError(13, "Permission denied"), 77, "group that the broker's files have"),
        (FileNotFoundError(2, "No such file"), 2, "one directory a stream"),
    ],
)
def test_a_data_directory_that_cannot_be_read_is_told_with_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch, fault: OSError, code: int, words: str
) -> None:
    def fails(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(ThisMachine, "scan", fails)

    ended = site.run()

    assert ended.exit_code == code
    assert "the data directory cannot be read" in ended.stderr
    assert words in ended.stderr.partition("try:")[2]
    assert "coldstream --help" not in ended.stderr
