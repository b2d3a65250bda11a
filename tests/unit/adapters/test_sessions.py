"""Sessions of boto3: what they share, and what they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader

from coldstream.adapters.sessions import new_session


@pytest.fixture(autouse=True)
def _no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks EC2 for credentials."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_descriptions_of_a_service_are_read_once_for_all_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    load = JSONFileLoader.load_file

    def counted(self: JSONFileLoader, path: str) -> object:
        found = load(self, path)
        if found is not None:
            read.append(path)
        return found

    new_session().client("sqs", region_name="us-east-1")
    monkeypatch.setattr(JSONFileLoader, "load_file", counted)
    client = new_session().client("sqs", region_name="eu-west-1")

    assert not read
    assert client.meta.region_name == "eu-west-1"


def test_a_session_has_the_profile_of_its_own_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text("[profile a]\nregion = eu-north-1\n[profile b]\nregion = sa-east-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    found = []
    for profile in ("a", "b"):
        monkeypatch.setenv("AWS_PROFILE", profile)
        session = new_session()
        found.append((session.region_name, session.client("sqs").meta.region_name))

    assert found == [("eu-north-1", "eu-north-1"), ("sa-east-1", "sa-east-1")]
