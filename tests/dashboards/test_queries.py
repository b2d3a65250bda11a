"""Prometheus takes every query, and the panels of a troubled agent are not empty."""

from __future__ import annotations

import html
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coldstream.agent.telling.metrics import serving
from coldstream_devkit.alerts import JOB
from coldstream_devkit.broker import free_ports
from coldstream_devkit.dashboard import ROOT, RULES, dashboard
from coldstream_devkit.dashboard_page import Answers, filled, page

from .conftest import CLICKS, ORDERS, UNNAMED, exported

_PANELS = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", ROOT / RULES], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_prometheus_parses_every_query_of_the_dashboard(promtool: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{panel['id']}:{target['refId']}", "expr": filled(target["expr"], 3600)}
        for panel in _PANELS
        for target in panel["targets"]
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

    done = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def url(prometheus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped two agents at least twice; a third one is down."""
    base = tmp_path_factory.mktemp("prometheus")
    down, listen = free_ports(2)
    with ExitStack() as stack:
        first = stack.enter_context(serving(exported(writer=True), 0))
        second = stack.enter_context(serving(exported(writer=False), 0))
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": f"rabbit-{number}"}}
            for number, port in enumerate((first, second, down), 1)
        ]
        config = base / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s"},
                    "scrape_configs": [{"job_name": JOB, "static_configs": targets}],
                }
            )
        )
        server = subprocess.Popen(
            [
                prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={base / 'data'}",
                f"--web.listen-address=127.0.0.1:{listen}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        there = f"http://127.0.0.1:{listen}"
        try:
            _wait_for_scrapes(there, server)
            yield there
        finally:
            server.terminate()
            server.wait(30)


def _wait_for_scrapes(url: str, server: subprocess.Popen[bytes]) -> None:
    query = "query?query=count(count_over_time(coldstream_agent_streams[1m])>1)"
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api/v1/{query}", timeout=5) as got:  # noqa: S310
                rows = json.load(got)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            rows = []
        if rows and rows[0]["value"][1] == "2":
            return
        time.sleep(0.2)
    raise AssertionError(f"prometheus has ended with {server.returncode}")


#: Nothing is uploaded while the test looks, so there is no size to speak of.
_MAY_BE_EMPTY = {"Mean size of a fragment"}


@pytest.mark.parametrize("panel", _PANELS, ids=lambda panel: f"{panel['id']} {panel['title']}")
def test_a_troubled_fleet_has_something_in_every_panel(url: str, panel: dict) -> None:  # type: ignore[type-arg]
    answers = Answers(url, 60)

    for target in panel["targets"]:
        rows = answers.ask(target)
        assert rows or panel["title"] in _MAY_BE_EMPTY, target["expr"]


def asked(url: str, title: str, kind: str) -> list[tuple[dict[str, str], float]]:
    (panel,) = [each for each in _PANELS if (each["title"], each["type"]) == (title, kind)]
    rows = Answers(url, 60).ask(panel["targets"][0])
    return [(dict(labels), points[-1][1]) for labels, points in rows]


def test_a_stream_counts_once_though_every_node_has_it(url: str) -> None:
    assert asked(url, "Streams", "stat") == [({}, 3)]
    assert asked(url, "Failing", "stat") == [({}, 1)]
    assert asked(url, "Bytes behind", "stat") == [({}, 99)]
    assert asked(url, "Agents down", "stat") == [({}, 1)]


def test_the_tables_show_the_row_of_the_writers_node(url: str) -> None:
    rows = asked(url, "Longest lag", "table")

    assert [(row["stream"], row["instance"], value) for row, value in rows] == [
        (ORDERS, "rabbit-1", 7.5)
    ]


def test_a_stream_whose_name_is_not_settled_is_drawn_with_its_directory(url: str) -> None:
    rows = asked(url, "Lag", "timeseries")

    assert {row["stream"]: row["name"] for row, _ in rows} == {
        ORDERS: "/ orders",
        CLICKS: "/ clicks",
        UNNAMED: UNNAMED,
    }


def test_the_page_without_grafana_draws_every_panel(url: str) -> None:
    drawn = page(Answers(url, 60))

    assert all(f"<h3>{html.escape(panel['title'])}</h3>" in drawn for panel in _PANELS)
