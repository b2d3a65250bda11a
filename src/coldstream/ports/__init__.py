"""What the core needs from the world, and how the world may fail.

Every adapter passes the conformance suite of its port in `coldstream_devkit.suites`; the in-memory
one is no exception. SDK errors are translated inside the adapter; only errors of
`coldstream.errors` come out.
"""

from __future__ import annotations

from coldstream.ports.catalog import (
    Catalog,
    CatalogPage,
    CommitOutcome,
    Landed,
    NotLanded,
    Unknown,
    outcome_of_failed_adoption,
    outcome_of_failed_change,
    outcome_of_failed_condition,
    outcome_of_moved_rules,
)
from coldstream.ports.objects import (
    MAX_DELETE_MS,
    MAX_DELETES,
    MAX_PART_BYTES,
    MAX_PARTS,
    MIN_PART_BYTES,
    BytesPart,
    Composer,
    CopyPart,
    Deleter,
    Doubted,
    KeepingStore,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    Part,
    VersionDeleter,
    VersionPage,
)
from coldstream.ports.offsets import (
    MAX_REFERENCE,
    MAX_REFERENCES,
    ConsumerOffsets,
    check_reference,
)
from coldstream.ports.operations import (
    ClaimFunction,
    CommitRequests,
    Execution,
    ExecutionStatus,
    Heartbeats,
    Metric,
    MetricSink,
    MetricUnit,
    Policies,
    Workflows,
)

__all__ = [
    "MAX_DELETES",
    "MAX_DELETE_MS",
    "MAX_PARTS",
    "MAX_PART_BYTES",
    "MAX_REFERENCE",
    "MAX_REFERENCES",
    "MIN_PART_BYTES",
    "BytesPart",
    "Catalog",
    "CatalogPage",
    "ClaimFunction",
    "CommitOutcome",
    "CommitRequests",
    "Composer",
    "ConsumerOffsets",
    "CopyPart",
    "Deleter",
    "Doubted",
    "Execution",
    "ExecutionStatus",
    "Heartbeats",
    "KeepingStore",
    "Landed",
    "Metric",
    "MetricSink",
    "MetricUnit",
    "NotLanded",
    "ObjectInfo",
    "ObjectStore",
    "ObjectVersion",
    "Part",
    "Policies",
    "Unknown",
    "VersionDeleter",
    "VersionPage",
    "Workflows",
    "check_reference",
    "outcome_of_failed_adoption",
    "outcome_of_failed_change",
    "outcome_of_failed_condition",
    "outcome_of_moved_rules",
]
