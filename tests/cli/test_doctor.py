"""`coldstream doctor` as a person runs it, on a tier in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coldstream.agent.doctor import probe
from coldstream.cli import doctor as module
from coldstream.cli.main import app
from coldstream_devkit.generator import write_stream
from tests.unit.adapters.links import answering

from .conftest import Run

RIGHTS_OF = module.rights_of


class Allowed:
    """Rights of a machine where all is well."""

    def credentials(self) -> str | None:
        return "env, access key ending in TEST"

    def clock(self) -> tuple[float, float]:
        return 0.0, 0.5

    def may_beat(self, node: str) -> None:
        """Yes."""

    def may_ask(self) -> None:
        """Yes."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_stream(tmp_path / "__orders_1745252105682952932", messages=10)
    return tmp_path


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rights_of", lambda *_: Allowed())
    monkeypatch.setattr(probe, "WAIT_SECONDS", 0)


def examined(run: Run, data_dir: Path, *more: str) -> Result:
    return run("doctor", "--data-dir", str(data_dir), "--committed", "all", *more)


def test_each_line_is_a_finding_with_what_to_do_below_it_and_the_last_one_counts(
    run: Run, data_dir: Path
) -> None:
    done = examined(run, data_dir, "--no-probe")

    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert all(line.startswith(("ok ", "warning ", "         try: ")) for line in lines)
    assert [line for line in lines if line.startswith("warning")]
    assert "8 ok, 2 warnings, 0 failed; no probe was made" in done.stderr


def test_json_has_every_finding_and_a_failure_is_exit_code_1(run: Run, tmp_path: Path) -> None:
    done = examined(run, tmp_path / "missing", "--no-probe", "--json")

    answer = json.loads(done.stdout)
    assert done.exit_code == 1
    assert answer["ok"] is False
    (row,) = [each for each in answer["checks"] if each["level"] == "FAILED"]
    assert row["check"] == "data directory"
    assert "--data-dir" in row["try"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--committed", ""), "--committed is missing"),
        (("--committed", "broker"), "--stream-uri"),
        (("--committed", "broker", "--stream-uri", "rabbitmq-stream://h"), "--management-uri"),
        (("--committed", "broker", "--stream-uri", "amqp://u:s3cret@h", "--management-uri",
          "http://h"), "a stream URI is"),
        (("--committed", "no-such-file.json"), "no-such-file.json"),
        (("--names", "no-such-file.json"), "no-such-file.json"),
    ],
)  # fmt: skip
def test_a_setting_that_is_wrong_fails_for_itself_and_the_other_checks_are_made(
    run: Run, data_dir: Path, more: tuple[str, ...], words: str
) -> None:
    done = examined(run, data_dir, "--no-probe", "--json", *more)

    rows = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 1
    assert rows["settings"]["level"] == "FAILED"
    assert words in rows["settings"]["message"]
    assert rows["bucket"]["level"] == "ok"
    assert "s3cret" not in done.output


def test_no_probe_is_made_with_settings_that_are_wrong(run: Run, data_dir: Path) -> None:
    done = examined(run, data_dir, "--json", "--node", "n", "--committed", "broker")

    rows = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert rows["settings"]["level"] == "FAILED"
    assert (rows["probe"]["level"], rows["probe"]["message"]) == (
        "warning", "none was made, because of what failed above"
    )  # fmt: skip
    assert json.loads(run("streams", "--match", "doctor", "--json").stdout) == []


def test_without_a_bucket_the_machine_is_looked_at_all_the_same(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLDSTREAM_BUCKET", "COLDSTREAM_TABLE"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(
        app, ["doctor", "--data-dir", str(data_dir), "--committed", "all", "--json"]
    )

    rows = {each["check"]: each["level"] for each in json.loads(done.stdout)["checks"]}
    assert done.exit_code == 1
    assert rows["data directory"] == "ok"
    assert rows["settings"] == "FAILED"


def test_a_page_of_a_proxys_is_a_failure_of_every_service_and_no_bug_of_ours(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = answering("text/html", b"<html>log in</html>")
    monkeypatch.setattr(module, "rights_of", RIGHTS_OF)
    for name, value in (
        ("AWS_ENDPOINT_URL", server.url),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
    ):
        monkeypatch.setenv(name, value)
    where = ("--bucket", "bucket", "--table", "table", "--queue-url", f"{server.url}/0/queue")
    local = ("--data-dir", str(data_dir), "--committed", "all")

    done = CliRunner().invoke(app, ["doctor", "--no-probe", "--json", *local, *where])
    server.close()

    rows = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    for name in ("clock and AWS", "heartbeat", "commit queue", "bucket", "table"):
        assert rows[name]["level"] == "FAILED"
        assert "is not AWS's" in rows[name]["message"]
        assert "HTTPS_PROXY" in rows[name]["try"]


def test_a_probe_is_no_stream_of_the_listing_unless_it_is_asked_for(
    run: Run, data_dir: Path
) -> None:
    done = examined(run, data_dir, "--json", "--node", "n")
    stages = {
        each["check"]: each["level"]
        for each in json.loads(done.stdout)["checks"]
        if each["check"].startswith("probe")
    }

    assert stages["probe: claim"] == stages["probe: upload"] == stages["probe: commit"] == "ok"
    assert stages["probe: event"] == "FAILED", "nothing announces objects here"
    assert json.loads(run("streams", "--json").stdout) == []
    (row,) = json.loads(run("streams", "--match", "doctor", "--json").stdout)
    assert (row["vhost"], row["queue"], row["next"]) == ("coldstream", "doctor-n", 1)
