"""What scripts rely on: exit codes, settings, clean streams, a current reference."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from coldstream.cli import connect as connecting
from coldstream.cli.exit_codes import BY_KIND, ExitCode, exit_code_of
from coldstream.cli.main import app
from coldstream.cli.options import Where, with_options
from coldstream.cli.report import _TRY, ConfigurationError, explain
from coldstream.errors import ColdstreamError, ErrorKind
from coldstream_devkit.local import command as local
from coldstream_devkit.reference import render

ROOT = Path(__file__).parents[2]


COMMAND = typer.main.get_command(app)


def every_command(group: Any) -> list[list[str]]:
    """The words that call each."""
    return [
        [name, *rest]
        for name, child in group.commands.items()
        for rest in (every_command(child) if hasattr(child, "commands") else [[]])
    ]


def every_error(cls: type[ColdstreamError] = ColdstreamError) -> list[type[ColdstreamError]]:
    return [cls, *(each for child in cls.__subclasses__() for each in every_error(child))]


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_of_error_has_an_exit_code_and_a_remedy(kind: ErrorKind) -> None:
    assert BY_KIND[kind] not in (ExitCode.OK, ExitCode.FAILED, ExitCode.INTERRUPTED)
    assert _TRY[kind]


@pytest.mark.parametrize("error", every_error(), ids=lambda cls: cls.__name__)
def test_every_error_is_three_lines(error: type[ColdstreamError]) -> None:
    if issubclass(error, ConfigurationError):
        return

    text = explain(error("what\nfailed", stream="s", offset=3, key="k"), "read")

    assert len(text.splitlines()) == 3
    assert "(stream s, offset 3, key k)" in text


def test_every_exit_code_has_a_meaning() -> None:
    assert all(each.meaning for each in ExitCode)


def test_a_missing_setting_is_78_and_says_what_to_set() -> None:
    error = ConfigurationError("nothing is set", remedy="set it")
    assert exit_code_of(error) is ExitCode.CONFIGURATION

    result = CliRunner().invoke(app, ["streams"], env={"COLDSTREAM_BUCKET": "b"})

    assert result.exit_code == 78
    assert "COLDSTREAM_TABLE" in result.stderr
    assert "COLDSTREAM_BUCKET is" not in result.stderr
    assert "coldstream local env" in result.stderr


def test_a_malformed_prefix_is_78() -> None:
    arguments = ["streams", "--bucket", "b", "--table", "t", "--prefix", "no-slash"]

    assert CliRunner().invoke(app, arguments).exit_code == 78


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    remote = connecting.connect(bucket="bucket", table="table", prefix="p/")

    assert remote.prefix == "p/"


def test_no_setting_is_shadowed_by_a_default_of_typer() -> None:
    seen: list[dict[str, str]] = []
    probe = typer.Typer()

    @probe.command()
    @with_options
    def show(*, where: Where) -> None:
        seen.append({"bucket": where.bucket, "prefix": where.prefix})

    env = {"COLDSTREAM_BUCKET": "from-env", "COLDSTREAM_PREFIX": "other/"}
    CliRunner().invoke(probe, [], env=env)
    CliRunner().invoke(probe, ["--bucket", "flag"], env=env)
    CliRunner().invoke(probe, [], env=dict.fromkeys(env))

    assert seen == [
        {"bucket": "from-env", "prefix": "other/"},
        {"bucket": "flag", "prefix": "other/"},
        {"bucket": "", "prefix": "rabbitmq/"},
    ]


@pytest.mark.parametrize("arguments", [["nonsense"], ["read"], ["read", "s", "--output", "xml"]])
def test_a_wrong_command_line_is_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_needs_neither_sdk_nor_numpy_and_no_settings() -> None:
    program = (
        "import sys; from coldstream.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit as e: code = e.code\n"
        "heavy = {'boto3', 'botocore', 'obstore', 'numpy', 'aws_cdk'} & sys.modules.keys()\n"
        "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert "describe" in done.stdout


def test_every_command_has_help_with_an_example() -> None:
    page = render()

    commands = ("streams", "describe STREAM", "read STREAM", "verify STREAM", "local up",
                "rebalance STREAM", "retention run [STREAM]", "retention plan [STREAM]",
                "retention rules", "retention hold STREAM", "retention release STREAM",
                "consolidate [STREAM]", "collect [STREAM]", "reconcile [STREAM]",
                "delete [STREAM]", "undelete STREAM")  # fmt: skip
    for command in commands:
        section = page.split(f"## `coldstream {command}`")[1].split("\n## ")[0]
        assert "Example" in section, command


def test_the_reference_is_current() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()

    assert written == render(), (
        "run: .venv/bin/python -m coldstream_devkit.reference > docs/reference/cli.md"
    )


def test_the_reference_has_every_word_that_an_error_can_give_for_why() -> None:
    table = render().split("## Exit codes")[1]
    words = {str(getattr(error, "why", "")) for error in every_error()} - {""}

    assert {"deleted", "not live", "legal hold", "configuration"} <= words
    for word in {*words, *ErrorKind, "workflow failed"}:
        assert f"`{word}`" in table, word


def test_a_broken_pipe_is_quiet(tmp_path: Path) -> None:
    program = (
        "import sys; sys.argv = ['coldstream', 'read', 's', '-o', 'raw']\n"
        "from tests.support.tier import Tier, chunk, PREFIX\n"
        "from coldstream.cli import options; from coldstream.adapters.place import Place, Remote\n"
        "from coldstream.cli.main import main\n"
        "tier = Tier(); tier.add('s', [[chunk(n, bytes(50000))] for n in range(100)])\n"
        "from coldstream.adapters.memory import MemoryPolicies\n"
        "remote = Remote(tier.store, tier.catalog, MemoryPolicies(), Place('b', 't', PREFIX))\n"
        "options.connect = lambda **_: remote\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}

    reading = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.read(10)
    reading.stdout.close()
    errors = reading.stderr.read()
    reading.stderr.close()

    assert (reading.wait(), errors) == (0, b"")


class FakeEnvironment:
    """Stands in for coldstream_devkit.local.environment."""

    def environment(self, root: Path, *, state_dir: Path | None = None) -> dict[str, str]:
        return {"COLDSTREAM_BUCKET": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:1/it's"}


def test_local_env_prints_lines_that_a_shell_can_evaluate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import coldstream_devkit.local

    fake: Any = FakeEnvironment()
    monkeypatch.setattr(coldstream_devkit.local, "environment", fake, raising=False)
    monkeypatch.setitem(sys.modules, "coldstream_devkit.local.environment", fake)

    result = CliRunner().invoke(app, ["local", "env", "--project", str(ROOT)])
    shell = ["sh", "-c", f'{result.stdout}\nprintf %s "$AWS_ENDPOINT_URL"']
    evaluated = subprocess.run(shell, capture_output=True, text=True, check=True)

    assert result.exit_code == 0
    assert evaluated.stdout == "http://127.0.0.1:1/it's"


def test_local_outside_a_checkout_is_78(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(app, ["local", "status"])

    assert result.exit_code == 78
    assert "--project" in result.stderr


def test_the_project_is_found_from_a_directory_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests" / "cli")

    assert local._project(None) == ROOT


def said_by_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the help of a command says above its options."""
    with contextlib.suppress(SystemExit):
        COMMAND.main([*arguments, "--help"])
    said = capsys.readouterr().out.partition("╭")[0].partition("Usage: ")[2]
    return [line.removeprefix(" ").rstrip() for line in said.splitlines()[1:]]


@pytest.mark.parametrize("arguments", every_command(COMMAND), ids=" ".join)
def test_help_fills_its_lines_and_wraps_no_example_at_80_columns(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = said_by_help(arguments, capsys)
    about = list(takewhile(lambda line: not line.startswith("Example"), lines))
    examples = lines[len(about) :]

    assert any(about)
    for line, following in pairwise(about):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > 78, f"{line!r} ends before its time"
    assert all(line in ("", "Example:", "Examples:") for line in examples[:2])
    for line, following in pairwise(examples[2:]):
        assert following.startswith("    ") == line.endswith("\\"), f"{line!r} is not whole"
