"""dashboards/: the Grafana dashboard of the agents and the alerts, as files.

python -m coldstream_devkit.dashboard

Both are written from `dashboard_panels` and `alerts`, so that a metric has one place where it is
named, and a test can hold every name against what the agent exports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coldstream_devkit.alerts import render_alerts
from coldstream_devkit.dashboard_model import Graph, Panel, Query, Row, Stat, Steps, Worst
from coldstream_devkit.dashboard_panels import ROWS

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = "dashboards/coldstream-agent.json"
RULES = "dashboards/rules.yml"
COMMAND = "python -m coldstream_devkit.dashboard"

_WIDTH = 24
_STATS_IN_A_ROW = 6
_HEIGHTS = {Stat: 3, Graph: 7, Worst: 9}
_GREEN, _YELLOW, _RED, _CALM = "green", "orange", "red", "blue"
_SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
_KINDS = {Stat: ("stat", "Stat"), Graph: ("timeseries", "Time series"), Worst: ("table", "Table")}
#: With more points a query over ten thousand streams is slow, and no screen shows them.
_POINTS = 300


def render() -> str:
    """The dashboard, as Grafana imports it."""
    return json.dumps(dashboard(), indent=2) + "\n"


def dashboard() -> dict[str, Any]:
    """The dashboard as JSON: schema 38, which Grafana 10 and later read."""
    return {
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *(
                {"type": "panel", "id": kind, "name": name, "version": ""}
                for kind, name in _KINDS.values()
            ),
        ],
        "annotations": {"list": [_annotation()]},
        "description": "How far RabbitMQ streams are tiered to S3, and what is behind",
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": _panels(),
        "refresh": "30s",
        "schemaVersion": 38,
        "tags": ["rabbitmq", "rabbitmq-stream", "coldstream"],
        "templating": {"list": _variables()},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": "coldstream agents",
        "uid": "coldstream-agent",
        "version": 1,
        "weekStart": "",
    }


def _annotation() -> dict[str, Any]:
    """Alerts that fire, as marks on every graph."""
    return {
        "datasource": _SOURCE,
        "enable": True,
        "expr": 'count by (alertname) (ALERTS{alertname=~"Coldstream.*", alertstate="firing"})',
        "iconColor": _RED,
        "name": "Alerts",
        "step": "60s",
        "titleFormat": "{{alertname}}",
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "DS_PROMETHEUS",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "type": "datasource",
    }
    agents = 'job=~"$job", instance=~"$instance"'
    return [
        source,
        _variable("job", "Job", "label_values(coldstream_agent_streams, job)"),
        # An agent that is down has no metrics of its own; it is still a target.
        _variable("instance", "Node", 'label_values(up{job=~"$job"}, instance)'),
        _variable(
            "vhost", "Virtual host", f"label_values(coldstream_stream_gone{{{agents}}}, vhost)"
        ),
        _variable(
            "queue",
            "Queue",
            f'label_values(coldstream_stream_gone{{{agents}, vhost=~"$vhost"}}, queue)',
        ),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """One that chooses some values of a label, or all: also streams whose name is not settled."""
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": _SOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        if row.title:
            found.append(_heading(row, len(found) + 1, y))
            y += 1
        for number, panel in enumerate(row.panels):
            width, across = _share(row)
            height = _HEIGHTS[type(panel)]
            place = {
                "h": height,
                "w": width,
                "x": number % across * width,
                "y": y + number // across * height,
            }
            found.append(_panel(panel, len(found) + 1, place))
        y = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in found)
    return found


def _share(row: Row) -> tuple[int, int]:
    """Width of each panel of a row, and how many are side by side."""
    across = len(row.panels)
    if isinstance(row.panels[0], Stat):
        across = _STATS_IN_A_ROW
    elif across == 4:
        across = 2
    return _WIDTH // across, across


def _heading(row: Row, number: int, y: int) -> dict[str, Any]:
    return {
        "collapsed": False,
        "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y},
        "id": number,
        "panels": [],
        "title": row.title,
        "type": "row",
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "datasource": _SOURCE,
        "description": panel.about,
        "gridPos": place,
        "id": number,
        "title": panel.title,
        "type": _KINDS[type(panel)][0],
    }
    if isinstance(panel, Stat):
        return about | _stat(panel)
    if isinstance(panel, Graph):
        return about | _graph(panel)
    return about | _worst(panel)


def _target(query: Query, letter: str, *, table: bool = False, now: bool = False) -> dict[str, Any]:
    return {
        "datasource": _SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "table" if table else "time_series",
        "instant": now,
        "legendFormat": query.legend or "__auto",
        "range": not now,
        "refId": letter,
    }


def _thresholds(steps: Steps | None, calm: str) -> dict[str, Any]:
    """Colours from the least value up; `calm` where nothing is wrong."""
    marks = [(level, colour) for level, colour in _levels(steps) if level is not None]
    if steps is not None and steps.falling:
        colours = [colour for _, colour in sorted(marks)] + [calm]
        bounds = [None, *(level for level, _ in sorted(marks))]
    else:
        colours = [calm] + [colour for _, colour in sorted(marks)]
        bounds = [None, *(level for level, _ in sorted(marks))]
    pairs = [{"color": c, "value": v} for c, v in zip(colours, bounds, strict=True)]
    return {"mode": "absolute", "steps": pairs}


def _levels(steps: Steps | None) -> list[tuple[float | None, str]]:
    return [] if steps is None else [(steps.yellow, _YELLOW), (steps.red, _RED)]


def _stat(panel: Stat) -> dict[str, Any]:
    calm = _CALM if panel.steps is None else _GREEN
    return {
        "fieldConfig": {
            "defaults": {
                "color": {"mode": "thresholds"},
                "mappings": [],
                "noValue": panel.none,
                "thresholds": _thresholds(panel.steps, calm),
                "unit": panel.unit,
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "background",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value",
        },
        "targets": [_target(panel.query, "A", now=True)],
    }


def _graph(panel: Graph) -> dict[str, Any]:
    return {
        "fieldConfig": {
            "defaults": {
                "color": {"mode": "palette-classic"},
                "custom": {
                    "drawStyle": "line",
                    "fillOpacity": 30 if panel.stacked else 0,
                    "lineInterpolation": "linear",
                    "lineWidth": 1,
                    "showPoints": "never",
                    "spanNulls": False,
                    "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
                    "thresholdsStyle": {"mode": "off" if panel.steps is None else "dashed"},
                },
                "mappings": [],
                "min": 0,
                "thresholds": _thresholds(panel.steps, "transparent"),
                "unit": panel.unit,
            },
            "overrides": [],
        },
        "maxDataPoints": _POINTS,
        "options": {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "right",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(q, chr(ord("A") + at)) for at, q in enumerate(panel.queries)],
    }


def _worst(panel: Worst) -> dict[str, Any]:
    coloured = {
        "matcher": {"id": "byName", "options": panel.value},
        "properties": [
            {"id": "unit", "value": panel.unit},
            {"id": "thresholds", "value": _thresholds(panel.steps, _GREEN)},
            {"id": "custom.cellOptions", "value": {"mode": "basic", "type": "color-background"}},
            {"id": "custom.width", "value": 110},
        ],
    }
    names = {"instance": "node", "Value": panel.value}
    order = {name: at for at, name in enumerate(("vhost", "queue", "Value", "instance", "stream"))}
    return {
        "fieldConfig": {
            "defaults": {
                "color": {"mode": "thresholds"},
                "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True},
                "mappings": [],
                "noValue": "none",
                "thresholds": _thresholds(None, "transparent"),
            },
            "overrides": [coloured],
        },
        "options": {
            "cellHeight": "sm",
            "footer": {"show": False},
            "showHeader": True,
            "sortBy": [{"desc": not panel.falling, "displayName": panel.value}],
        },
        "targets": [_target(panel.query, "A", table=True, now=True)],
        "transformations": [
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True, "job": True, "__name__": True},
                    "indexByName": order,
                    "renameByName": names,
                },
            }
        ],
    }


def main() -> None:
    """Write both files into the checkout."""
    (ROOT / DASHBOARD).write_text(render())
    (ROOT / RULES).write_text(render_alerts())


if __name__ == "__main__":
    main()
