"""The agent's file: what it may say, who wins, and what a mistake in it is told as."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coldstream.cli import agent_setup
from coldstream.cli.agent_config import shown, without_password
from coldstream.cli.agent_file import RULE_KEYS, AgentFile, read_file
from coldstream.cli.agent_keys import LIVE, ONLY_ON_THE_COMMAND_LINE, keys
from coldstream.cli.agent_options import AgentOptions, LogFormat
from coldstream.cli.agent_setup import Said, Setup, reloaded
from coldstream.cli.main import app
from coldstream.cli.options import Where
from coldstream.errors import InvalidInputError
from coldstream_devkit.agent_reference import render

ROOT = Path(__file__).parents[2]
SECRET = "S3cret/with@signs"


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_setup, "INSTALLED", tmp_path / "none.toml")
    for key in keys().values():
        if key.environment:
            monkeypatch.delenv(key.environment, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.toml"


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(app, ["agent", *map(str, arguments)], env=environment)


def show(*arguments: str | Path, **environment: str) -> dict[str, Any]:
    ended = run("config", "--show", "--json", *arguments, **environment)
    assert ended.exit_code == 0, ended.output
    return {row["key"]: (row["value"], row["origin"]) for row in json.loads(ended.stdout)["keys"]}


def test_flags_win_over_the_environment_that_over_the_file_that_over_the_default(
    file: Path,
) -> None:
    file.write_text('bucket = "f"\ntable = "f"\nprefix = "f/"\nflush = "5s"\n')

    said = show("--config", file, "--bucket", "flag", COLDSTREAM_BUCKET="e", COLDSTREAM_TABLE="e")

    assert said["bucket"] == ("flag", "flag --bucket")
    assert said["table"] == ("e", "environment COLDSTREAM_TABLE")
    assert said["prefix"] == ("f/", f"file {file}")
    assert said["flush"] == ("5s", f"file {file}")
    assert said["memory"] == ("256MiB", "default")


def test_every_option_but_those_of_one_run_is_a_key() -> None:
    options = {*Where.__dataclass_fields__, *AgentOptions.__dataclass_fields__}

    assert set(keys()) == options - ONLY_ON_THE_COMMAND_LINE
    assert set(keys()) > LIVE
    for key in keys().values():
        assert key.flag == f"--{key.name.replace('_', '-')}"


def test_the_example_has_every_key_and_every_one_can_be_uncommented(file: Path) -> None:
    example = (ROOT / "packaging/agent.toml").read_text()
    uncommented = "\n".join(
        line[1:] if line.startswith("#") and line[1:2] not in ("", " ") else line
        for line in example.splitlines()
    )
    file.write_text(uncommented)

    content = tomllib.loads(uncommented)
    read = read_file(file)

    assert set(read.values) == set(keys())
    assert {name for rule in content["streams"] for name in rule} == set(RULE_KEYS)
    assert tomllib.loads(example) == {"committed": "broker"}
    for name in set(keys()) - {"bucket", "table", "queue_url", "claim_function", "data_dir"}:
        plain = keys()[name].default
        if plain and name != "prefix":
            assert read.values[name] == plain, f"the example's {name} is not the default"


@pytest.mark.parametrize("name", ["flush", "takeover"])
def test_a_further_name_of_an_option_is_one_of_its_key(file: Path, name: str) -> None:
    file.write_text(f'{name}_seconds = 7\n[[streams]]\nflush_seconds = "3s"\n')

    read = read_file(file)

    assert read.values == {name: 7}
    assert read.rules == ({"flush": 3},)
    assert show("--config", file)[name] == ("7s", f"file {file}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flush = 1\nflush_seconds = 1", ["flush and flush_seconds are the same key"]),
        ("flush_seconds = 1\nflush = 1", ["flush and flush_seconds are the same key"]),
        ("[[streams]]\nflush = 1\nflush_seconds = 1", ["the same key", "rule 1"]),
        ("flush_second = 1", ["'flush_second'", "did you mean flush"]),
    ],
)
def test_two_names_of_one_key_are_an_error(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)

    with pytest.raises(InvalidInputError) as found:
        read_file(file)

    assert all(each in str(found.value) for each in words), found.value


def test_how_much_may_be_held_is_a_setting(file: Path) -> None:
    file.write_text('held_bytes = "20GiB"\n')

    read = read_file(file)

    options = AgentOptions(**read.values)
    assert options.settings("b").held_bytes == 20 * 2**30


def test_a_file_is_enough(file: Path, tmp_path: Path) -> None:
    file.write_text(
        f'bucket = "bucket"\ntable = "table"\ndata_dir = "{tmp_path}"\ncommitted = "all"\n'
    )

    ended = run("config", "--config", file)

    assert ended.exit_code == 0, ended.output
    assert "nothing is wrong" in ended.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fragment-size = 3", ["'fragment-size'", "did you mean fragment_size?"]),
        ('committed = "/tmp/a\\u0000b"', ["committed", "NUL"]),
        ('buckets = "b"', ["'buckets'", "did you mean bucket?"]),
        ("zzz = 1", ["'zzz'", "there are bucket, table"]),
        ("once = true", ["once is about one run"]),
        ("json = true", ["json is about one run"]),
        ("flush = 5.5", ["flush must be", "a number with a point"]),
        ("flush = true", ["flush must be", "true or false"]),
        ('flush = "soon"', ["flush", "a duration such as"]),
        ("flush = -1", ["flush", "from 0"]),
        ('uploads = "3"', ["uploads must be a whole number"]),
        ("uploads = true", ["uploads must be a whole number"]),
        ("metrics_port = 70000", ["metrics_port must be from 1 to 65535"]),
        ('last_copy = "yes"', ["last_copy must be true or false"]),
        ("bucket = 1979-05-27", ["bucket must be a string", "a date"]),
        ('log = "xml"', ['log must be "text" or "json"']),
        ("flush 5", ["not TOML", "line 1"]),
        ('flush = "5s"\nflush = "6s"', ["not TOML"]),
        ("streams = 3", ["[[streams]]"]),
        ("[[streams]]\nqueue = 'a'", ["'queue'", "rule 1", "vhost, name"]),
        ("[[streams]]\n[[streams]]\nvhosts = 'a'", ["rule 2", "did you mean vhost?"]),
        ("[[streams]]\nname = '('", ["rule 1", "name = '('"]),
        ("[[streams]]\nname = ''", ["rule 1", "name must be a pattern"]),
        ("[[streams]]\ntier = 1", ["rule 1", "tier must be true or false"]),
        ("[[streams]]\nupload_tail = 'no'", ["rule 1", "upload_tail must be true or false"]),
        ("[[streams]]\nflush = 'soon'", ["rule 1", "flush"]),
        ("x = " + "[" * 5000, ["not TOML"]),
    ],
)
def test_a_mistake_names_the_file_and_the_key(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)

    with pytest.raises(InvalidInputError) as caught:
        read_file(file)

    assert str(file) in str(caught.value)
    for word in words:
        assert word in caught.value.reason


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"\xff = 1", "not UTF-8"), (b"#" * (2**20 + 1), "more than"), (None, "cannot be read")],
)
def test_a_file_that_is_no_text_is_told_as_such(file: Path, body: bytes | None, words: str) -> None:
    if body is not None:
        file.write_bytes(body)

    ended = run("run", "--config", file)

    assert ended.exit_code == 2
    assert words in ended.stderr
    assert str(file) in ended.stderr


def test_a_mistake_in_a_uri_never_repeats_it(file: Path) -> None:
    file.write_text(
        'data_dir = "/x"\ncommitted = "broker"\nmanagement_uri = "http://localhost"\n'
        f'bucket = "bucket"\ntable = "table"\nstream_uri = "amqp://tier:{SECRET}@127.0.0.1:5552"\n'
    )
    broken = file.with_name("broken.toml")
    broken.write_text(f'stream_uri = ["rabbitmq-stream://tier:{SECRET}@127.0.0.1:5552"]')

    for path in (file, broken):
        ended = run("config", "--config", path)
        assert ended.exit_code == 2
        assert "stream" in ended.stderr
        assert SECRET not in ended.output


@pytest.mark.parametrize("source", ["file", "flag", "environment"])
@pytest.mark.parametrize("form", ["--json", "--show"])
def test_no_password_is_ever_shown(file: Path, source: str, form: str) -> None:
    uri = f"rabbitmq-stream://tier:{SECRET}@127.0.0.1:5552"
    file.write_text(f'stream_uri = "{uri}"\n' if source == "file" else "")
    flags = ["--stream-uri", uri] if source == "flag" else []
    environment = {"COLDSTREAM_STREAM_URI": uri} if source == "environment" else {}

    ended = run("config", "--show", form, "--config", file, *flags, **environment)

    assert "rabbitmq-stream://tier:***@127.0.0.1:5552" in ended.stdout
    for part in (SECRET, "S3cret", "signs"):
        assert part not in ended.output


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://u:p@h:15672", "http://u:***@h:15672"),
        ("https://u:p@h/", "https://u:***@h"),
        ("rabbitmq-stream+tls://u:a:b@h", "rabbitmq-stream+tls://u:***@h"),
        ("http://h:15672", "http://h:15672"),
        ("http://u@h:15672", "http://u@h:15672"),
        ("http://u:p/w", "***"),
        ("http://u:p?w", "***"),
        ("u:p@h", "***"),
        ("http://u/x:p@h", "***"),
    ],
)
def test_what_cannot_be_read_with_certainty_is_hidden_as_a_whole(uri: str, shown: str) -> None:
    assert without_password(uri) == shown


def test_show_tells_what_is_missing_and_check_fails_for_it(file: Path) -> None:
    file.write_text('committed = "broker"\n[[streams]]\nvhost = "t"\ntier = false\n')

    shown, checked = run("config", "--show", "--config", file), run("config", "--config", file)

    assert (shown.exit_code, checked.exit_code) == (0, 2)
    assert "--data-dir is empty" in shown.stderr
    assert 'streams 1\tvhost = "t", tier = false' in shown.stdout


def test_check_needs_a_remote_tier_and_what_the_broker_asks_for(file: Path) -> None:
    file.write_text('data_dir = "/x"\ncommitted = "all"\n')
    assert run("config", "--config", file).exit_code == 78

    file.write_text('data_dir = "/x"\ncommitted = "broker"\n')
    assert "needs --stream-uri" in run("config", "--config", file).stderr
    assert "--committed is missing" in run("config", "--data-dir", "/x").stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("uploads = 0", "parallel uploads"),
        ("uploads = -1", "parallel uploads"),
        ('upload_stall = "0s"', "--upload-stall"),
        ('bucket = "bb"', "no bucket can have this name"),
        ('table = "a b"', "no table can have this name"),
        ('stream_uri = "amqp://x"', "a stream URI is"),
        ('management_uri = "ftp://x"', "management"),
        ('names = "/nowhere.json"', "cannot be read"),
        ('[[streams]]\nvhost = "t"\nfragment_size = "1GiB"', "rule 1"),
    ],
)
def test_a_value_that_is_wrong_is_told_before_those_that_are_missing(
    file: Path, line: str, words: str
) -> None:
    """It was found out when the last of the others was given."""
    file.write_text(line)

    ended = run("config", "--config", file)

    assert ended.exit_code in (2, 78)
    assert words in ended.stderr
    assert "missing" not in ended.stderr


def test_the_installed_file_is_the_one_that_config_shows(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text('cluster = "installed"\n')
    monkeypatch.setattr(agent_setup, "INSTALLED", file)

    assert show()["cluster"] == ("installed", f"file {file}")
    assert run("run").exit_code == 2  # which never reads a file that nobody has named


def setup(file: AgentFile, **said: Said) -> Setup:
    origins = dict.fromkeys(keys(), Said.DEFAULT) | dict.fromkeys(file.values, Said.FILE) | said
    values = {name: key.default for name, key in keys().items()} | dict(file.values)
    where = {name: values.pop(name) for name in ("bucket", "table", "prefix")}
    return Setup(AgentOptions(**values), Where(**where), file, origins)


class TestReload:
    path = Path("agent.toml")

    def test_what_can_change_is_taken_over_and_the_rest_is_said(self) -> None:
        running = setup(AgentFile(self.path, {"flush": 60, "bucket": "b"}))
        rules = ({"tier": False},)

        found = reloaded(running, AgentFile(self.path, {"flush": 5, "uploads": 9}, rules))

        assert (found.taken, found.waiting) == (("flush", "streams"), ("bucket", "uploads"))
        options = found.setup.options
        assert (options.flush, options.uploads, found.setup.where.bucket) == (5, 3, "b")
        assert "only after a restart: bucket, uploads" in str(found)

    def test_a_key_that_is_gone_has_its_default_again(self) -> None:
        running = setup(AgentFile(self.path, {"flush": 5}))

        found = reloaded(running, AgentFile(self.path))

        assert (found.setup.options.flush, found.taken) == (60, ("flush",))

    def test_what_a_flag_or_the_environment_says_stays(self) -> None:
        running = setup(AgentFile(self.path), flush=Said.FLAG, bucket=Said.ENVIRONMENT)

        found = reloaded(running, AgentFile(self.path, {"flush": 5, "bucket": "other"}))

        assert (found.taken, found.waiting, found.setup.options.flush) == ((), (), 60)

    def test_what_waits_for_a_restart_is_said_again_and_is_forgotten_when_taken_back(self) -> None:
        running = setup(AgentFile(self.path))
        changed = AgentFile(self.path, {"log": LogFormat.JSON})

        first = reloaded(running, changed)

        assert reloaded(first.setup, changed).waiting == ("log",)
        assert reloaded(first.setup, AgentFile(self.path)).waiting == ()


def test_a_size_of_nothing_has_no_unit() -> None:
    """`0GiB` is no limit that anybody would write."""
    assert shown(keys()["upload_rate"], 0) == "0"
    assert shown(keys()["held_bytes"], 8 * 2**30) == "8GiB"


def test_the_reference_of_the_file_is_current() -> None:
    written = (ROOT / "docs/reference/agent.md").read_text()

    assert written == render(), (
        "run: .venv/bin/python -m coldstream_devkit.agent_reference > docs/reference/agent.md"
    )
