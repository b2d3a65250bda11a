"""docs/how-to/restore.md, *From a copy*: its commands, as they stand there, on a second table."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from coldstream import deployment
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.dynamodb_policies import DynamoPolicies
from coldstream.cli.main import app
from coldstream.manifest.catalog import CatalogItem, QueueName
from coldstream.plans.policy import PolicySet, Rule
from tests.support.aws import BUCKET, PREFIX, TABLE, create_table, give_table_id
from tests.support.remote import STREAM

DOC = Path(__file__).resolve().parents[2] / "docs/how-to/restore.md"
RULES = (Rule("default", max_age_ms=86_400_000), Rule("court", queue="orders", hold=True))


def commands() -> list[str]:
    """The lines of the page that begin with "$", continued ones in one."""
    text = DOC.read_text().replace("\\\n", " ")
    return re.findall(r"^    \$ (.+)$", text, re.MULTILINE)


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        deployment.ENV_BUCKET: BUCKET,
        deployment.ENV_TABLE: TABLE,
        deployment.ENV_PREFIX: PREFIX,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    with mock_aws():
        client = boto3.client("dynamodb")
        create_table(client)
        yield client


def run(command: str, dynamodb: Any) -> None:
    """Run one of the page's commands; `aws` by the same operation of boto3."""
    command, _, output = command.partition(" > ")
    program, *words = shlex.split(command.replace("$COLDSTREAM_TABLE", TABLE))
    if program == "aws":
        operation, arguments = words[1], iter(words[2:])
        given = {
            "".join(part.capitalize() for part in name.strip("-").split("-")): value
            for name, value in zip(arguments, arguments, strict=True)
        }
        getattr(dynamodb, operation.replace("-", "_"))(**given)
        return
    assert program == "coldstream"
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (command, result.output)
    if output:
        Path(output).write_text(result.stdout)


def test_rules_names_and_states_come_back_from_a_copy_by_the_commands_of_the_page(
    dynamodb: Any,
) -> None:
    catalog = DynamoCatalog(client=dynamodb, table=TABLE, prefix=PREFIX)
    give_table_id(dynamodb)
    catalog.anchor(CatalogItem(stream=STREAM, table_id="then", name=QueueName("c", "/", "orders")))
    policies = DynamoPolicies(client=dynamodb, table=TABLE, prefix=PREFIX)
    assert policies.save(PolicySet(RULES), 0)
    steps = commands()

    run(steps[0], dynamodb)
    assert policies.save(PolicySet(), policies.load()[1])  # a hand that slipped
    for step in steps[1:]:
        run(step, dynamodb)

    assert set(policies.load()[0].rules) == set(RULES)
    (told,) = json.loads(Path("then.json").read_text())
    assert (told["stream"], told["queue"]) == (STREAM, "orders")
