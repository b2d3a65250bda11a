"""How long a delete may be under way: a rebuild waits for it, so no delete may last longer."""

from __future__ import annotations

import pytest
from botocore.config import Config

from coldstream.adapters.place import IN_LAMBDA
from coldstream.adapters.s3_delete import ATTEMPTS
from coldstream.cli.connect import aws_client
from coldstream.ports import MAX_DELETE_MS

#: The longest pause between two attempts in botocore's standard mode.
_PAUSE_SECONDS = 20
#: AWS ends every function after so long.
_LAMBDA_SECONDS = 900


def longest_ms(config: Config) -> int:
    """All attempts of the adapter, each with all of the SDK, each cut off at its very end."""
    retries = config.retries
    tries = retries.get("total_max_attempts") or retries["max_attempts"]
    once = config.connect_timeout + config.read_timeout
    return int(1000 * ATTEMPTS * (tries * once + (tries - 1) * _PAUSE_SECONDS))


def test_no_delete_of_a_function_goes_on_for_longer() -> None:
    assert longest_ms(IN_LAMBDA.config()) <= MAX_DELETE_MS
    assert _LAMBDA_SECONDS * 1000 <= MAX_DELETE_MS


def test_no_delete_of_a_command_goes_on_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    assert longest_ms(aws_client("s3").meta.config) <= MAX_DELETE_MS
