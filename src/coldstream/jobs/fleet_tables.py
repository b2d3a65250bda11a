"""The tables of the job fleet. infra/queries/*.sql read them; docs/how-to/glue.md shows them."""

from __future__ import annotations

import pyarrow as pa

from coldstream.jobs.snapshots import STREAM, TIME, SnapshotTable, column

_TEXT, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.bool_()
#: The greatest of a column; offsets may be greater.
MAX_NUMBER = 2**63 - 1

STREAMS = SnapshotTable(
    "fleet_streams",
    "One row for each stream of the catalog",
    pa.schema(
        [
            STREAM,
            column("cluster", _TEXT, "RabbitMQ cluster, empty if nobody has recorded it"),
            column("vhost", _TEXT, "virtual host"),
            column("queue", _TEXT, "name of the queue"),
            column("state", _TEXT, "live, deleting, rebuilding, deleted"),
            column("first_offset", _NUMBER, "first offset in S3"),
            column("next_offset", _NUMBER, "one past the last offset in S3"),
            column("offsets", _NUMBER, "how many these are, with those of holes"),
            column("first_time", TIME, "of the oldest fragment's first chunk"),
            column("last_time", TIME, "of the newest chunk in S3"),
            column("age_seconds", _NUMBER, "since first_time"),
            column("lag_seconds", _NUMBER, "since last_time"),
            column("last_commit", TIME, "when the manifest was last changed"),
            column("bytes", _NUMBER, "of all live fragments"),
            column("fragments", _NUMBER, "live fragments and holes"),
            column("holes", _NUMBER, "ranges that both tiers have lost"),
            column("hole_offsets", _NUMBER, "offsets in them"),
            column("smallest_bytes", _NUMBER, "of a fragment"),
            column("largest_bytes", _NUMBER, "of a fragment"),
            column("groups", _NUMBER, "nodes of the manifest below its root"),
            column("epoch", _NUMBER, "of the last claim"),
            column("version", _NUMBER, "changes of the manifest so far"),
            column(
                "ledger",
                pa.list_(pa.struct([pa.field("epoch", _NUMBER), pa.field("floor", _NUMBER)])),
                "claims: epoch and the offset it began at",
            ),
            column("root_key", _TEXT, "object of the manifest's root"),
            column("quarantine_key", _TEXT, "object that names what the cluster has lost"),
            column("retention_rule", _TEXT, "rule in force, empty if none"),
            column("max_age_seconds", _NUMBER, "of that rule"),
            column("max_bytes", _NUMBER, "of that rule"),
            column("consolidate", _FLAG, "whether small fragments are joined"),
            column("hold", _FLAG, "whether nothing of it may go"),
            column("hold_rules", pa.list_(_TEXT), "rules that hold it"),
            column("undelete_until", TIME, "until when a deleted stream can be had back"),
            column("error", _TEXT, "why its manifest could not be read"),
        ]
    ),
)

FRAGMENTS = SnapshotTable(
    "fleet_fragments",
    "One row for each live fragment and hole",
    pa.schema(
        [
            STREAM,
            column("kind", _TEXT, "fragment or hole"),
            column("first_offset", _NUMBER, "of its first record"),
            column("next_offset", _NUMBER, "one past its last record"),
            column("min_time", TIME, "of its chunks"),
            column("max_time", TIME, "of its chunks"),
            column("bytes", _NUMBER, "of the object"),
            column("records", _NUMBER, "in it; 0 for a hole"),
            column("epoch", _NUMBER, "of its key"),
            column("uid", _TEXT, "of its key"),
            column("key", _TEXT, "of the object"),
            column("path", _TEXT, "groups above it, from the top, as level:uid/"),
        ]
    ),
)

OBJECTS = SnapshotTable(
    "fleet_objects",
    "One row for each object of a stream in the bucket",
    pa.schema(
        [
            STREAM,
            column("key", _TEXT, "of the object"),
            column("kind", _TEXT, "fragment, hole, root, group, marks, quarantine, other"),
            column("bytes", _NUMBER, "of the object"),
            column("modified", TIME, "when S3 took it"),
            column("referenced", _FLAG, "whether the manifest refers to it"),
            column("ahead", _FLAG, "an upload that no commit has reached yet"),
            column("quarantined", _FLAG, "kept because a claim has cut it off the manifest"),
        ]
    ),
)
