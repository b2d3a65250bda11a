"""Dashboard and alerts name what an agent exports, all of it, and are what the code says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from coldstream_devkit.alerts import ALERTS, PAGE, render_alerts
from coldstream_devkit.dashboard import COMMAND, DASHBOARD, ROOT, RULES, dashboard, render

from .conftest import exported

#: Of Prometheus itself.
_ITS_OWN = {"up", "ALERTS"}
_METRIC = re.compile(r"\b(?:coldstream_[a-z0-9_]+|up|ALERTS)\b")


def exported_names() -> set[str]:
    """Every name that a scrape of the real collector has."""
    return {sample.name for family in exported(writer=True).collect() for sample in family.samples}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])


def queries() -> Iterator[str]:
    yield from panel_queries()
    yield from (each["expr"] for each in dashboard()["annotations"]["list"])
    yield from (v["definition"] for v in dashboard()["templating"]["list"] if v["type"] == "query")
    yield from (alert.expr for alert in ALERTS)


@pytest.mark.parametrize(("path", "text"), [(DASHBOARD, render()), (RULES, render_alerts())])
def test_the_files_are_what_the_code_writes(path: str, text: str) -> None:
    assert (ROOT / path).read_text() == text, f"run: {COMMAND}"


def test_every_metric_that_is_asked_for_is_exported() -> None:
    asked = {name for query in queries() for name in _METRIC.findall(query)}

    assert asked - _ITS_OWN <= exported_names()


def test_every_metric_that_is_exported_is_on_the_dashboard() -> None:
    shown = {name for query in panel_queries() for name in _METRIC.findall(query)}

    assert exported_names() <= shown


def test_panels_lie_beside_each_other_and_say_what_they_show() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        assert panel["type"] == "row" or panel["description"].endswith(".")
        taken |= cells
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_every_panel_follows_the_variables() -> None:
    names = {each["name"] for each in dashboard()["templating"]["list"]}

    for panel in panels():
        assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}"
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__range", "__rate_interval", "1"}
            assert {"job", "instance"} <= used - {"2"} <= names, panel["title"]
            if "coldstream_stream_" in target["expr"]:
                assert {"vhost", "queue"} <= used, panel["title"]


def test_thresholds_rise_as_grafana_wants_them() -> None:
    def all_steps(value: Any) -> Iterator[list[dict[str, Any]]]:
        if isinstance(value, dict):
            if "steps" in value:
                yield value["steps"]
            for each in value.values():
                yield from all_steps(each)
        elif isinstance(value, list):
            for each in value:
                yield from all_steps(each)

    for steps in all_steps(json.loads(render())):
        assert steps[0]["value"] is None
        levels = [step["value"] for step in steps[1:]]
        assert levels == sorted(levels)


def test_the_file_of_alerts_says_what_the_alerts_are_and_where_each_is_explained() -> None:
    (group,) = yaml.safe_load((ROOT / RULES).read_text())["groups"]
    page = (ROOT / PAGE).read_text()
    headings = {line.strip("# ").lower() for line in page.splitlines() if line.startswith("#")}

    assert [rule["expr"] for rule in group["rules"]] == [alert.expr for alert in ALERTS]
    for rule in group["rules"]:
        where, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert where == PAGE
        assert anchor in headings
