"""The saved queries of Logs Insights: each is about logs that say what it asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Assembly

ROOT = Path(__file__).resolve().parents[2]
QUERIES = ROOT / "infra" / "log_queries"  # as in infra.logs, which brings the CDK: seconds
NAMES = sorted(path.stem for path in QUERIES.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_query_asks_for_what_the_handlers_log(name: str) -> None:
    """A message or a field that nobody writes would be an empty answer, which says: all is well."""
    code = "".join(path.read_text() for path in (ROOT / "functions").glob("*.py"))
    text = (QUERIES / f"{name}.txt").read_text()
    fields = re.search(r"^fields (.+)$", text, re.MULTILINE)
    asked = re.findall(r"\w+", fields[1]) if fields else re.findall(r"(?:sum|max)\((\w+)\)", text)
    by_powertools = {"timestamp", "function_name", "message", "level"}

    for message in re.findall(r'"([^"]+)"', text):
        assert message == "ERROR" or f'"{message}"' in code
    for field in {*asked} - by_powertools:
        assert re.search(rf'"{field}": |\b{field}=', code), field


def test_the_queries_are_saved_below_the_stacks_name_and_ask_each_function_that_may_answer(
    assembly: Assembly,
) -> None:
    made = {
        one["Properties"]["Name"]: one["Properties"]["LogGroupNames"]
        for one in assembly.of_type("AWS::Logs::QueryDefinition").values()
    }
    functions = assembly.of_type("AWS::Lambda::Function").values()
    groups = [json.dumps(one["Properties"]["LoggingConfig"]["LogGroup"]) for one in functions]

    assert sorted(made) == [f"coldstream/{name}" for name in NAMES]
    assert sorted(map(json.dumps, made["coldstream/failures"])) == sorted(groups)
    assert all(made.values())


def test_the_runbook_names_every_query(assembly: Assembly) -> None:
    text = (ROOT / "docs/how-to/alarms.md").read_text()

    assert all(f"`{name}`" in text for name in NAMES)


def test_logs_of_machines_are_below_the_name_that_needs_no_entry_in_the_accounts_policy(
    assembly: Assembly,
) -> None:
    """The account's one policy for delivered logs has 5,120 characters, and may be full."""
    names = [
        str(one["Properties"].get("LogGroupName", ""))
        for one in assembly.of_type("AWS::Logs::LogGroup").values()
    ]

    assert sum(name.startswith("/aws/vendedlogs/states/coldstream-") for name in names) == 7
