"""What the dashboard of the agents shows: panels as values, with their queries.

A stream has a row of metrics on every node that has a replica. The agent beside the stream's writer
does the work, the others stand by and look at the manifest now and then, so what they say is older.
`of_writer` therefore takes the row of the writer's node, and all rows where no node has the writer,
or its agent is down: a stream is never missing because its agent is.
"""

from __future__ import annotations

from coldstream_devkit.dashboard_model import Graph, Query, Row, Stat, Steps, Unit, Worst

#: What the dashboard's variables choose.
_AGENTS = 'job=~"$job", instance=~"$instance"'
_STREAMS = f'{_AGENTS}, vhost=~"$vhost", queue=~"$queue"'
_STREAM = "stream, vhost, queue"
_NAME = "{{name}}"
_WRITERS = "Of the node that has the stream's writer; of every node where none has, or says so."
_TEN = "The ten worst of each moment."
#: Gradients need some time; a rate over less than four scrapes has gaps.
_RATE = "[$__rate_interval]"


def of_writer(metric: str, labels: str = _STREAMS) -> str:
    """A metric of streams, of the node that has the writer; of all nodes where none says so."""
    name = f"coldstream_stream_{metric}{{{labels}}}"
    writer = f"coldstream_stream_writer{{{labels}}}"
    return f"(({name} and {writer} == 1) or on (stream) {name})"


def _once(metric: str) -> str:
    """The same, each stream once."""
    return f"max by ({_STREAM}) ({of_writer(metric)})"


def _named(expr: str) -> str:
    """With a label `name`: virtual host and queue; the directory while they are not settled."""
    joined = f'label_join({expr}, "name", ";", "vhost", "queue", "stream")'
    directory = f'label_replace({joined}, "name", "$1", "name", ";;(.*)")'
    return f'label_replace({directory}, "name", "$1 $2", "name", "(.+?);(.+);.*")'


def _of_agents(metric: str) -> str:
    return f"coldstream_agent_{metric}{{{_AGENTS}}}"


def _rate(metric: str) -> str:
    return f"sum by (instance) (rate(coldstream_stream_{metric}{{{_STREAMS}}}{_RATE}))"


def _count(condition: str) -> str:
    """How many rows; 0 where there are none."""
    return f"count({condition}) or vector(0)"


def _moving(mark: str) -> Query:
    """How fast a watermark moves, all streams together; none where a claim has cut back."""
    name = f"coldstream_stream_{mark}_offset{{{_STREAMS}}}"
    writer = f"coldstream_stream_writer{{{_STREAMS}}}"
    return Query(f"sum(clamp_min(deriv({name}{_RATE}), 0) and {writer} == 1)", mark)


def _waiting(above: str, below: str, legend: str) -> Query:
    """Offsets between two watermarks, all streams together."""
    upper, lower = _once(f"{above}_offset"), _once(f"{below}_offset")
    return Query(f"sum(clamp_min({upper} - {lower}, 0))", legend)


_AT_A_GLANCE = Row(
    "",
    (
        Stat(
            "Agents up",
            "Agents that Prometheus reaches.",
            Query(f"sum(up{{{_AGENTS}}})"),
            steps=Steps(red=1, falling=True),
        ),
        Stat(
            "Agents down",
            "Agents that Prometheus knows and does not reach.",
            Query(_count(f"up{{{_AGENTS}}} == 0")),
            steps=Steps(red=1),
        ),
        Stat(
            "Streams",
            "Streams that are followed, each counted once.",
            Query(f"count(count by (stream) (coldstream_stream_writer{{{_STREAMS}}}))"),
        ),
        Stat(
            "Without writer's agent",
            "Streams that no agent says it is beside the writer of. The agents of other members"
            " take over; one node's agent is down, or was never installed.",
            Query(_count(f"max by (stream) (coldstream_stream_writer{{{_STREAMS}}}) == 0")),
            steps=Steps(yellow=1),
        ),
        Stat(
            "Failing",
            f"Streams that wait after an error, which the agent's log tells. {_WRITERS}",
            Query(_count(f"{_once('failing')} == 1")),
            steps=Steps(yellow=1),
        ),
        Stat(
            "Standing still",
            "Streams of which something waits, and whose manifest has not moved for three minutes"
            f" or more. {_WRITERS}",
            Query(_count(f"{_once('standstill_seconds')} > 0")),
            steps=Steps(red=1),
        ),
        Stat(
            "Unproved",
            "Streams that have had local data for a minute or more that their node's broker does"
            " not prove to be committed, so that nothing of it is uploaded.",
            Query(_count(f"coldstream_stream_unproved_seconds{{{_STREAMS}}} > 60")),
            steps=Steps(red=1),
        ),
        Stat(
            "Longest lag",
            f"For how long the oldest committed chunk waits to be published. {_WRITERS}",
            Query(f"max({of_writer('lag_seconds')})"),
            Unit.SECONDS,
            Steps(300, 900),
        ),
        Stat(
            "Bytes behind",
            f"Of all local logs that are not published. {_WRITERS}",
            Query(f"sum({_once('lag_bytes')})"),
            Unit.BYTES,
        ),
        Stat(
            "Least headroom",
            "Until local retention takes something that is not published. Empty where nothing is"
            f" about to. {_WRITERS}",
            Query(f"min({of_writer('headroom_seconds')})"),
            Unit.SECONDS,
            Steps(yellow=3600, red=600, falling=True),
            none="enough",
        ),
        Stat(
            "Offsets lost",
            "That agents have declared lost within the time that is shown.",
            Query(f"sum(increase(coldstream_stream_lost_offsets_total{{{_STREAMS}}}[$__range]))"),
            steps=Steps(red=1),
        ),
        Stat(
            "Uploading",
            "What all agents upload, of these streams.",
            Query(f"sum(rate(coldstream_stream_uploaded_bytes_total{{{_STREAMS}}}{_RATE}))"),
            Unit.BYTES_PER_SECOND,
        ),
        Stat(
            "Held files",
            "Share of its budget that an agent's held files take: the fullest agent.",
            Query(f"max({_of_agents('held_bytes')} / {_of_agents('held_budget_bytes')})"),
            Unit.SHARE,
            Steps(0.5, 0.8),
        ),
    ),
)

_BEHIND = Row(
    "HOW FAR BEHIND",
    (
        Graph(
            "Lag",
            f"For how long the oldest committed chunk waits to be published. {_TEN} {_WRITERS}",
            (Query(_named(f"topk(10, {_once('lag_seconds')})"), _NAME),),
            Unit.SECONDS,
            Steps(red=900),
        ),
        Graph(
            "Headroom",
            "Until local retention takes something that is not published, if the stream grows on as"
            " it does. A stream has no line while nothing of it is about to be taken."
            f" {_TEN} {_WRITERS}",
            (
                Query(
                    _named(f"bottomk(10, min by ({_STREAM}) ({of_writer('headroom_seconds')}))"),
                    _NAME,
                ),
            ),
            Unit.SECONDS,
            Steps(red=3600, falling=True),
        ),
        Graph(
            "Bytes behind",
            f"Of the local log that are not published. {_TEN} {_WRITERS}",
            (Query(_named(f"topk(10, {_once('lag_bytes')})"), _NAME),),
            Unit.BYTES,
        ),
        Graph(
            "Standstill",
            f"For how long a stream of which something waits makes no progress. {_TEN} {_WRITERS}",
            (Query(_named(f"topk(10, {_once('standstill_seconds')} > 0)"), _NAME),),
            Unit.SECONDS,
            Steps(red=300),
        ),
    ),
)

_WORST = Row(
    "THE WORST STREAMS",
    (
        Worst(
            "Longest lag",
            f"Now. {_WRITERS}",
            Query(f"topk(20, {of_writer('lag_seconds')} > 0)"),
            "lag",
            Unit.SECONDS,
            Steps(300, 900),
        ),
        Worst(
            "Least headroom",
            f"Now. {_WRITERS}",
            Query(f"bottomk(20, {of_writer('headroom_seconds')})"),
            "headroom",
            Unit.SECONDS,
            Steps(yellow=3600, red=600, falling=True),
            falling=True,
        ),
        Worst(
            "Failing or standing still",
            "Now: for how long nothing has moved; 0 where it has waited after an error for less"
            f" than three minutes. {_WRITERS}",
            Query(
                f"topk(20, {of_writer('standstill_seconds')} > 0"
                f" or ({of_writer('standstill_seconds')} and {of_writer('failing')} == 1))"
            ),
            "no progress for",
            Unit.SECONDS,
            Steps(yellow=0, red=300),
        ),
    ),
)

_MARKS = Row(
    "THE WAY OF AN OFFSET",
    (
        Graph(
            "Offsets passing each watermark / s",
            "Committed by the brokers, cut into fragments, uploaded to S3, verified by a function,"
            " published to readers. Of the nodes that have the writers.",
            tuple(
                _moving(each) for each in ("committed", "cut", "uploaded", "verified", "published")
            ),
            Unit.PER_SECOND,
        ),
        Graph(
            "Offsets that wait before each watermark",
            f"What is committed and not published, by what it waits for. {_WRITERS}",
            (
                _waiting("committed", "cut", "to be cut"),
                _waiting("cut", "uploaded", "to be uploaded"),
                _waiting("uploaded", "verified", "to be verified"),
                _waiting("verified", "published", "to be published"),
            ),
            stacked=True,
        ),
    ),
)

_UPLOADS = Row(
    "UPLOADS",
    (
        Graph(
            "Uploaded / s",
            "Of these streams, by node. Where two nodes upload one stream, both count.",
            (Query(_rate("uploaded_bytes_total"), "{{instance}}"),),
            Unit.BYTES_PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Fragments / s",
            "Objects that are made, by node: each is a PUT, and soon an event.",
            (Query(_rate("uploaded_fragments_total"), "{{instance}}"),),
            Unit.PER_SECOND,
            stacked=True,
        ),
        Graph(
            "Mean size of a fragment",
            "By node. Slow streams make small ones, at each flush.",
            (
                Query(
                    f"{_rate('uploaded_bytes_total')} / ({_rate('uploaded_fragments_total')} > 0)",
                    "{{instance}}",
                ),
            ),
            Unit.BYTES,
        ),
    ),
)

_LINK = Row(
    "THE LINK TO S3",
    (
        Graph(
            "Rate of large uploads",
            "What the link gives, by node: all uploads of an agent together, of late.",
            (Query(_of_agents("upload_bytes_per_second"), "{{instance}}"),),
            Unit.BYTES_PER_SECOND,
        ),
        Graph(
            "Largest fragment",
            "By node: the agent's `target_size`, and less where a fragment of that size would take"
            " too long.",
            (Query(_of_agents("fragment_limit_bytes"), "{{instance}}"),),
            Unit.BYTES,
        ),
        Graph(
            "Refusals in a row",
            "Uploads that S3 has refused or not answered, by node; 0 again with the first that"
            " lands.",
            (
                Query(_of_agents("store_refusals"), "{{instance}}"),
                Query(f"{_of_agents('store_refuses')} == 1", "{{instance}}: asked now and then"),
            ),
        ),
    ),
)

_AGENT = Row(
    "AGENTS",
    (
        Graph(
            "Streams by node",
            "Streams that an agent follows, and those of them whose writer is on its node.",
            (
                Query(_of_agents("streams"), "{{instance}}: followed"),
                Query(
                    f"sum by (instance) (coldstream_stream_writer{{{_STREAMS}}})",
                    "{{instance}}: writer",
                ),
            ),
        ),
        Graph(
            "Uploads in flight",
            "By node, and how many may be: fewer than the agent's `uploads` where the link is slow"
            " or S3 refuses.",
            (
                Query(_of_agents("uploads_in_flight"), "{{instance}}"),
                Query(_of_agents("uploads_allowed"), "{{instance}}: allowed"),
            ),
        ),
        Graph(
            "Held files",
            "Files that the broker has removed and that are kept until durable, and their budget."
            " What is held is on the broker's disk.",
            (
                Query(_of_agents("held_bytes"), "{{instance}}"),
                Query(f"min({_of_agents('held_budget_bytes')})", "budget"),
            ),
            Unit.BYTES,
        ),
        Graph(
            "Not held",
            "Files that should be held and are not, because the agent may not open more; segments"
            " that were let go since it was started, because all took more than the budget.",
            (
                Query(_of_agents("held_lacking_files"), "{{instance}}: files"),
                Query(_of_agents("held_dropped_segments_total"), "{{instance}}: let go"),
            ),
        ),
        Graph(
            "Age of the loop's last word",
            "An agent whose loop says nothing for five minutes hangs. A look at a stream that does"
            " not end holds up this stream alone, and its other figures stand still.",
            (
                Query(_of_agents("loop_age_seconds"), "{{instance}}"),
                Query(_of_agents("longest_look_seconds"), "{{instance}}: longest look"),
            ),
            Unit.SECONDS,
            Steps(red=300),
        ),
    ),
)

_LOSSES = Row(
    "TROUBLE",
    (
        Graph(
            "Failing streams",
            "By node. Also of agents that stand by: there it does no harm.",
            (
                Query(
                    f"sum by (instance) (coldstream_stream_failing{{{_STREAMS}}})", "{{instance}}"
                ),
            ),
        ),
        Graph(
            "Holes",
            "Ranges that agents have declared lost since they were started, by node.",
            (
                Query(
                    f"sum by (instance) (coldstream_stream_holes_total{{{_STREAMS}}})",
                    "{{instance}}",
                ),
            ),
        ),
        Graph(
            "Streams gone from the broker",
            "Their directories are gone since the agent was started, by node.",
            (Query(f"sum by (instance) (coldstream_stream_gone{{{_STREAMS}}})", "{{instance}}"),),
        ),
    ),
)

#: From top to bottom.
ROWS = (_AT_A_GLANCE, _BEHIND, _WORST, _MARKS, _UPLOADS, _LINK, _AGENT, _LOSSES)
