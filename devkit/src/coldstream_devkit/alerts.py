"""When Prometheus tells somebody of an agent, and what it says then.

Limits are those of the agent itself where it has one: a stream is said to stand still after three
minutes, a loop to hang after five, and a headroom to be short below an hour.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream_devkit.dashboard_panels import of_writer

#: What the scrape configuration calls the agents.
JOB = "coldstream-agent"
#: Where each alert has its section.
PAGE = "docs/how-to/monitor-the-agent.md"

_JOB = f'job="{JOB}"'
_OF = "stream {{ $labels.vhost }} {{ $labels.queue }} ({{ $labels.stream }})"
_FOR = "{{ $value | humanizeDuration }}"
_HERE = "{{ $labels.instance }}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        name: in the words of Prometheus.
        expr: has a row for each agent or stream that is in trouble.
        lasts: for how long before somebody is told.
        severity: `critical` where data is in danger, else `warning`.
        summary: one line, with the labels of the row.
        action: what to do first.
    """

    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    action: str


def _of_stream(metric: str) -> str:
    return of_writer(metric, _JOB)


def _agent(metric: str) -> str:
    return f"coldstream_agent_{metric}{{{_JOB}}}"


def _new(counter: str) -> str:
    """What a counter has gained within an hour; all of it where it was not there before."""
    name = f"coldstream_stream_{counter}{{{_JOB}}}"
    return f"increase({name}[1h]) > 0 or ({name} > 0 unless {name} offset 1h)"


ALERTS = (
    Alert(
        "ColdstreamAgentDown",
        f"up{{{_JOB}}} == 0 or (last_over_time(up{{{_JOB}}}[1h]) unless up{{{_JOB}}})",
        "5m",
        "critical",
        f"The agent on {_HERE} does not answer",
        "Look at the service on that node. Other members take over the streams that have any.",
    ),
    Alert(
        "ColdstreamAgentHangs",
        f"{_agent('loop_age_seconds')} > 300",
        "1m",
        "critical",
        f"The agent's loop on {_HERE} has said nothing for {_FOR}",
        "systemd starts it anew after ten minutes. Look at its log, at the disk and at S3.",
    ),
    Alert(
        "ColdstreamStoreRefuses",
        f"{_agent('store_refuses')} == 1",
        "10m",
        "critical",
        f"S3 refuses or does not answer the uploads of {_HERE}",
        "The agent's log has S3's last words. Nothing is lost while headroom lasts.",
    ),
    Alert(
        "ColdstreamNoAgentBesideWriter",
        f"count(max by (stream) (coldstream_stream_writer{{{_JOB}}}) == 0) > 0",
        "15m",
        "warning",
        "{{ $value }} streams have no agent on the node of their writer",
        "Start the agent on every node. Others do its work meanwhile, later.",
    ),
    Alert(
        "ColdstreamStreamLagGrows",
        f"{_of_stream('lag_seconds')} > 900"
        f" and deriv(coldstream_stream_lag_seconds{{{_JOB}}}[10m]) > 0",
        "10m",
        "warning",
        f"The oldest chunk of {_OF} has waited for {_FOR}, and it grows",
        "Look whether it stands still or fails; if neither, uploads are too slow for what comes.",
    ),
    Alert(
        "ColdstreamHeadroomShort",
        f"{_of_stream('headroom_seconds')} < 3600 and {_of_stream('lag_seconds')} > 300",
        "5m",
        "warning",
        f"Local retention takes what is not uploaded of {_OF} in {_FOR}",
        "Give the stream more local bytes or time now, then look why uploads are behind.",
    ),
    Alert(
        "ColdstreamHeadroomGone",
        f"{_of_stream('headroom_seconds')} < 600 and {_of_stream('lag_seconds')} > 300",
        "2m",
        "critical",
        f"Local retention takes what is not uploaded of {_OF} in {_FOR}",
        "Give the stream more local bytes or time at once: a hole is next.",
    ),
    Alert(
        "ColdstreamStreamStandsStill",
        f"{_of_stream('standstill_seconds')} > 300",
        "2m",
        "warning",
        f"The manifest of {_OF} has not moved for {_FOR}, though something waits",
        "The agent's log says why.",
    ),
    Alert(
        "ColdstreamUnproved",
        f"count by (instance) (coldstream_stream_unproved_seconds{{{_JOB}}} > 300) > 0",
        "5m",
        "critical",
        f"The broker on {_HERE} proves nothing new of {{{{ $value }}}} streams",
        "See whether the broker is up, its stream port answers, and the agent's user may read.",
    ),
    Alert(
        "ColdstreamLookHangs",
        f"{_agent('longest_look_seconds')} > 300",
        "0m",
        "warning",
        f"On {_HERE} a look at a stream has not ended for {_FOR}",
        "The agent's log names the stream; a file, the broker or S3 does not answer.",
    ),
    Alert(
        "ColdstreamStreamFails",
        f"{_of_stream('failing')} == 1",
        "15m",
        "warning",
        f"An error stops {_OF} on {_HERE}",
        "The agent's log has the error, and what to do about it.",
    ),
    Alert(
        "ColdstreamOffsetsLost",
        _new("lost_offsets_total"),
        "0m",
        "critical",
        f"{{{{ $value | humanize }}}} offsets of {_OF} were declared lost",
        "Look for a copy before the brokers' files are gone too.",
    ),
    Alert(
        "ColdstreamHeldFilesNearBudget",
        f"{_agent('held_bytes')} / {_agent('held_budget_bytes')} > 0.8",
        "5m",
        "warning",
        f"Held files on {_HERE} take {{{{ $value | humanizePercentage }}}} of their budget",
        "Uploads are behind retention. Over the budget the next segment is lost to the upload.",
    ),
    Alert(
        "ColdstreamHeldFilesDropped",
        f"increase({_agent('held_dropped_segments_total')}[1h]) > 0",
        "0m",
        "critical",
        f"{_HERE} has let segments go that were not uploaded, for want of held_bytes",
        "Look why uploads are behind, and raise held_bytes if the disk has room: holes are next.",
    ),
    Alert(
        "ColdstreamTooFewFiles",
        f"{_agent('held_lacking_files')} > 0",
        "15m",
        "warning",
        f"On {_HERE} {{{{ $value }}}} files are not held, because too many are open",
        "Raise LimitNOFILE of the service: half of it may be held, two files for each stream.",
    ),
)


def render_alerts() -> str:
    """The file for Prometheus' `rule_files`."""
    lines = [
        "# Generated: python -m coldstream_devkit.dashboard. The limits are the agent's own where",
        f"# it has one; what each alert means: {PAGE}.",
        "groups:",
        "  - name: coldstream-agent",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            "        expr: >-",
            *(f"          {line}" for line in _broken(alert.expr)),
            f"        for: {alert.lasts}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          action: {_quoted(alert.action)}",
            f"          runbook: {PAGE}#{alert.name.lower()}",
        ]
    return "\n".join(lines) + "\n"


def _broken(expr: str) -> list[str]:
    """An expression in lines that can be read; a line that is folded becomes a space again."""
    for word in (" and ", " or ", " unless "):
        expr = expr.replace(word, f"\n{word.strip()} ")
    return expr.splitlines()


def _quoted(text: str) -> str:
    """A YAML string in single quotes, in which nothing but the quote is special."""
    return "'" + text.replace("'", "''") + "'"
