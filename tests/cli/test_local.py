"""`coldstream local` for people: what it says next, and why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldstream.cli.main import app
from coldstream_devkit.local import environment
from coldstream_devkit.local.environment import LocalAws
from coldstream_devkit.local.process import Server
from coldstream_devkit.local.synth import AppFailedError

ROOT = Path(__file__).parents[2]


def test_the_next_command_names_the_state_that_this_one_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def up(*_: Any, **given: Any) -> LocalAws:
        return LocalAws(Server(given["state_dir"], 1, 4999), {}, started=True, change="created")

    monkeypatch.setattr(environment, "up", up)
    state = tmp_path / "with space"

    said = CliRunner().invoke(app, ["local", "up", "--project", str(ROOT), "--state", str(state)])

    assert f"local env --project {ROOT} --state '{state}')" in said.stderr


def test_a_setting_that_the_app_refuses_is_a_configuration_error_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def up(*_: Any, **__: Any) -> LocalAws:
        raise AppFailedError("the CDK app failed with code 1: app.py: unknown setting nope")

    monkeypatch.setattr(environment, "up", up)

    said = CliRunner().invoke(app, ["local", "up", "--project", str(ROOT), "--set", "nope=1"])

    assert said.exit_code == 78
    assert "unknown setting nope" in said.stderr
    assert "network" not in said.stderr


def test_a_setting_that_the_app_refuses_leaves_no_server_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was started first, ran on, and nobody said so."""

    def refuse(*_: Any, **__: Any) -> Path:
        raise AppFailedError("the CDK app failed with code 1: app.py: unknown setting nope")

    def start(*_: Any, **__: Any) -> Server:
        raise AssertionError("a server was started")

    monkeypatch.setattr(environment, "synth", refuse)
    monkeypatch.setattr(environment.process, "start", start)

    said = CliRunner().invoke(
        app,
        ["local", "up", "--project", str(ROOT), "--state", str(tmp_path / "s"), "--set", "nope=1"],
    )

    assert said.exit_code == 78, said.output
    assert "unknown setting nope" in said.stderr
