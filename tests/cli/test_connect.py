"""Settings of AWS: the same region for every client, and clear words where one is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldstream.cli import connect as connecting
from coldstream.cli.main import app


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nobody has ever set anything of AWS."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID",
                 "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "config").write_text("[profile far]\nregion = ap-south-1\n[default]\n")
    (tmp_path / "credentials").write_text(
        "[far]\naws_access_key_id = x\naws_secret_access_key = x\n"
    )


def regions() -> set[str]:
    """Of all clients of one command."""
    remote: Any = connecting.connect(bucket="bucket", table="table", prefix="p/")
    return {
        remote.catalog._client.meta.region_name,
        remote.store._store.config["region"],
        connecting.aws_client("sqs").meta.region_name,
    }


def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


def test_the_region_of_aws_region_is_that_of_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    assert regions() == {"eu-central-1"}


def test_where_two_variables_differ_every_client_takes_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")

    assert regions() == {"eu-central-1"}


def test_the_region_of_a_profile_is_that_of_the_bucket_too(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", "far")

    assert regions() == {"ap-south-1"}


def fails(*options: str) -> tuple[int, str]:
    """How a command fails: by three lines, with no traceback."""
    given = ["streams", "--bucket", "bucket", "--table", "table", *options]
    result = CliRunner().invoke(app, given)
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 3
    return result.exit_code, result.stderr


def test_without_credentials_it_says_so_and_how_to_give_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    code, said = fails()

    assert code == 78
    assert "no AWS credentials" in said
    assert "AWS_PROFILE" in said


def test_half_a_pair_of_keys_is_no_bug_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")

    assert fails()[0] == 78


@pytest.mark.parametrize("region", ["", "eu-central-1"])
def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    monkeypatch.setenv("AWS_REGION", region)

    code, said = fails()

    assert code == 78
    assert "nowhere" in said


def test_without_a_region_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)

    code, said = fails()

    assert code == 78
    assert "AWS_REGION" in said


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"])
def test_an_endpoint_that_is_no_url_is_what_is_to_be_corrected(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """AWS_REGION and credentials were, which were right."""
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv(name, "notaurl")

    code, said = fails()

    assert code == 78
    assert "notaurl" in said.splitlines()[0]
    assert "AWS_ENDPOINT_URL" in said.splitlines()[2]
    assert "AWS_REGION" not in said


@pytest.mark.parametrize(
    "bucket", ["a b/../c", "../c", "a/b", "x..y", "-a", "a\x00b", "é", "x" * 300, " bb", "bb"]
)
def test_a_name_that_no_bucket_can_have_is_refused_before_any_client_sees_it(
    monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    code, said = fails("--bucket", bucket)

    assert code == 78
    assert "no bucket can have this name" in said


def test_a_url_in_the_place_of_a_bucket_is_told_which_part_of_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    code, said = fails("--bucket", "s3://tier/rabbitmq/")

    assert code == 78
    assert "try: give the name alone: tier" in said


@pytest.mark.parametrize("table", ["a/b", "a b", "x" * 300, "tt", "arn:aws:s3:::t"])
def test_a_name_that_no_table_can_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    code, said = fails("--table", table)

    assert code == 78
    assert "no table can have this name" in said


def test_the_arn_of_a_table_is_a_name_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/coldstream-Catalog"

    assert connecting.connect(bucket="bucket", table=arn, prefix="p/").prefix == "p/"
