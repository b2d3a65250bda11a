"""What agents say of streams, as the commands show it."""

from __future__ import annotations

from typing import Any

from coldstream.cli.connect import Remote
from coldstream.cli.output import note, when
from coldstream.errors import ColdstreamError
from coldstream.plans.stream_words import MARKS
from coldstream.usecases.told_by_agents import AgentsTold, Said, told_by_agents

#: A stream that is written to has something that is not proved yet at any moment, ms.
_UNPROVED_MS = 60_000
#: Columns of `streams` that come from the agents.
COLUMNS = ("super_stream", "agent", "lag_s", "lag_bytes", "stuck_since")
NODE_COLUMNS = (
    "node",
    "writer",
    "said",
    "lag_s",
    "lag_bytes",
    "headroom_s",
    "unproved_s",
    "stuck_since",
    "reason",
)
MARK_COLUMNS = ("node", *MARKS)


def agents_told(remote: Remote, now_ms: int, stream: str | None = None) -> AgentsTold:
    """As `told_by_agents`; nothing, with a note, where that cannot be read or nobody would say."""
    if remote.heartbeats is None:
        return AgentsTold({}, False, [])
    try:
        told = told_by_agents(remote.heartbeats, now_ms=now_ms, stream=stream)
    except ColdstreamError as exc:
        note(f"what the agents say cannot be read: {exc}")
        return AgentsTold({}, False, [])
    for trouble in told.troubles:
        note(f"passed over: {trouble}")
    for node in told.shared:
        note(
            f"more than one agent tells under the name {node!r}: only what was told last is known;"
            " give each node's agent a name of its own (`node`)"
        )
    return told


def stream_cells(
    told: AgentsTold, stream: str, next_offset: int, now_ms: int, *, super_stream: str = ""
) -> dict[str, Any]:
    """What the row of a stream has from the agents; None where nobody says.

    Args:
        told: what they say.
        stream: directory name.
        next_offset: of its manifest.
        now_ms: ms since the Unix epoch.
        super_stream: that the catalog has recorded; what agents say now goes first.
    """
    said = told.of(stream)
    recorded = {"super_stream": super_stream_of(told, stream, super_stream)}
    if said is None:
        gone = "gone" if told.is_gone(stream) else None
        return {**dict.fromkeys(COLUMNS), **recorded, "agent": gone, "unproved_s": None}
    return {
        "agent": f"{said.node}{_in_brackets(said, next_offset, now_ms)}",
        **recorded,
        **_behind(said, next_offset, now_ms),
    }


def super_stream_of(told: AgentsTold, stream: str, recorded: str = "") -> str | None:
    """The super stream of which it is a partition; None if of none, or nobody says or has said."""
    words = (each.word.super_stream for each in told.said.get(stream, ()))
    return next((each for each in words if each), recorded or None)


def _in_brackets(said: Said, next_offset: int, now_ms: int) -> str:
    if said.silent:
        return " (silent)"
    return " (unproved)" if said.unproved_ms(next_offset, now_ms) >= _UNPROVED_MS else ""


def node_rows(told: AgentsTold, stream: str, next_offset: int, now_ms: int) -> list[dict[str, Any]]:
    """A row for each node that tells of the stream, whose manifest ends at `next_offset`."""
    return [
        {
            "node": said.node,
            "writer": said.word.writer,
            "said": when(said.at_ms),
            "silent": said.silent,
            **_behind(said, next_offset, now_ms),
            "headroom_s": None if said.word.headroom_ms < 0 else said.word.headroom_ms // 1000,
            "reason": said.word.reason or None,
            "watermarks": {
                name: {"offset": offset, "time": when(at_ms) if at_ms else None}
                for name, offset, at_ms in zip(
                    MARKS, said.word.offsets, said.word.times_ms, strict=True
                )
            },
        }
        for said in told.said.get(stream, ())
    ]


def mark_rows(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The watermarks of each node for a table: offset, and when it moved there."""
    return [
        {
            "node": each["node"],
            **{
                name: f"{mark['offset']} at {mark['time'] or '-'}"
                for name, mark in each["watermarks"].items()
            },
        }
        for each in nodes
    ]


def _behind(said: Said, next_offset: int, now_ms: int) -> dict[str, Any]:
    lag_ms, stuck_ms = said.lag_ms(next_offset, now_ms), said.stuck_since_ms(next_offset)
    return {
        "lag_s": lag_ms // 1000,
        "lag_bytes": said.word.lag_bytes if lag_ms else 0,
        "unproved_s": said.unproved_ms(next_offset, now_ms) // 1000,
        "stuck_since": None if stuck_ms is None else when(stuck_ms),
    }
