from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldstream.cli.gateway_options import GatewayOptions
from coldstream.cli.main import app
from coldstream.errors import InvalidInputError
from coldstream.gateway.users import parse_users
from coldstream.read_policy import ReadPolicy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (GatewayOptions(), "who may log in"),
        (GatewayOptions(users=Path("u"), data_dir=Path("d")), "--data-dir needs --stream-uri"),
        (GatewayOptions(users=Path("u"), tls_cert=Path("c")), "go together"),
        *(
            (GatewayOptions(users=Path("u"), read_policy=policy), "needs --stream-uri")
            for policy in (ReadPolicy.DISABLE, ReadPolicy.NOT_IN_DISK)
        ),
        (
            GatewayOptions(
                users=Path("u"),
                stream_uri="rabbitmq-stream://h",
                data_dir=Path("d"),
                read_policy=ReadPolicy.FORCE,
            ),
            "reads no files",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: GatewayOptions, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        options.check()


def test_a_data_directory_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """Every tail came from the broker's port instead, and nobody heard of it."""
    options = GatewayOptions(
        users=Path("u"), stream_uri="rabbitmq-stream://h", data_dir=tmp_path / "none"
    )
    with pytest.raises(InvalidInputError, match="--data-dir cannot be read"):
        options.check()


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("none")
    options = GatewayOptions(tls_cert=tmp_path / "c", tls_key=tmp_path / "c")
    with pytest.raises(InvalidInputError, match="cannot be used"):
        options.tls()


def test_the_hash_that_it_prints_is_a_password_of_the_users_file() -> None:
    done = CliRunner().invoke(app, ["gateway", "hash-password"], input="geheim\n")

    users = parse_users(f"app:{done.stdout.strip()}:.*")
    assert users.log_in("app", "geheim") is not None
    assert users.log_in("app", "geheim\n") is None
