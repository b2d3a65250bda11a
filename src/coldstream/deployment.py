"""Names on which stack, agents and jobs agree: variables, outputs, workflows, jobs, metrics."""

from __future__ import annotations

import hashlib
import re

from coldstream.errors import InvalidInputError
from coldstream.names import check_stream

ENV_BUCKET = "COLDSTREAM_BUCKET"
ENV_TABLE = "COLDSTREAM_TABLE"
ENV_PREFIX = "COLDSTREAM_PREFIX"
ENV_QUEUE_URL = "COLDSTREAM_COMMIT_QUEUE_URL"
ENV_CLUSTER = "COLDSTREAM_CLUSTER"
ENV_STREAM_URI = "COLDSTREAM_STREAM_URI"
ENV_REPLAY_TO = "COLDSTREAM_REPLAY_TO"
ENV_MANAGEMENT_URI = "COLDSTREAM_MANAGEMENT_URI"
ENV_CLAIM_FUNCTION = "COLDSTREAM_CLAIM_FUNCTION"
ENV_WORKFLOWS = "COLDSTREAM_WORKFLOW_ARN_PREFIX"  # a workflow's name behind it makes its ARN
ENV_BRANCHING = "COLDSTREAM_BRANCHING"
ENV_FRAGMENT_SIZE = "COLDSTREAM_FRAGMENT_BYTES"
ENV_READ_WHOLE = "COLDSTREAM_READ_WHOLE_BYTES"  # what consolidate rather reads than copies
ENV_GRACE_SECONDS = "COLDSTREAM_GRACE_SECONDS"
ENV_UNDELETE_SECONDS = "COLDSTREAM_UNDELETE_SECONDS"
ENV_RECONCILE_MINUTES = "COLDSTREAM_RECONCILE_MINUTES"
ENV_RECONCILE_IDLE_MINUTES = "COLDSTREAM_RECONCILE_IDLE_MINUTES"
ENV_WAREHOUSE = "COLDSTREAM_WAREHOUSE"  # URL below which tables have their files; ends in "/"
ENV_DATABASE = "COLDSTREAM_DATABASE"  # of the Glue Data Catalog

STACK_NAME = "coldstream"  # unless the setting `stack-name` is another
OUTPUT_BUCKET = "BucketName"
OUTPUT_TABLE = "TableName"
OUTPUT_PREFIX = "Prefix"
OUTPUT_QUEUE_URL = "CommitQueueUrl"
OUTPUT_DEAD_LETTERS_URL = "CommitDeadLettersUrl"
OUTPUT_CLAIM_FUNCTION = "ClaimFunctionName"
OUTPUT_COMMIT_FUNCTION = "CommitFunctionName"
OUTPUT_RECONCILE_FUNCTION = "ReconcileFunctionName"
OUTPUT_WORKFLOWS = "WorkflowArnPrefix"
OUTPUT_AGENT_ROLE = "AgentRoleArn"
OUTPUT_AGENT_POLICY = "AgentPolicyArn"
OUTPUT_READER_POLICY = "ReaderPolicyArn"
OUTPUT_GATEWAY_POLICY = "GatewayPolicyArn"
OUTPUT_OPERATOR_POLICY = "OperatorPolicyArn"
OUTPUT_CONSOLE_POLICY = "ConsolePolicyArn"
OUTPUT_LOGS_POLICY = "LogsPolicyArn"
OUTPUT_UNDELETE_SECONDS = "UndeleteSeconds"
OUTPUT_WAREHOUSE = "WarehouseUrl"
OUTPUT_DATABASE = "DatabaseName"
OUTPUT_WORKGROUP = "WorkgroupName"
OUTPUT_ALARM_TOPIC = "AlarmTopicArn"
OUTPUT_DASHBOARD = "DashboardUrl"

# One state machine each, called <stack>-<name>.
WORKFLOWS = ("rebalance", "retention", "delete", "erase", "consolidate", "collect", "reconcile")

REASON_SCHEDULE = "schedule"  # why an execution began that nobody started

#: The longest run of the function `claim`: agents wait for its answer.
CLAIM_TIMEOUT_SECONDS = 120

METRIC_NAMESPACE = "coldstream"
METRIC_COMMITS = "CommitsLanded"
METRIC_CONFLICTS = "CommitConflicts"
METRIC_FRAGMENTS_COMMITTED = "FragmentsCommitted"
METRIC_BYTES_COMMITTED = "BytesCommitted"
METRIC_FRAGMENTS_REFUSED = "FragmentsRefused"
METRIC_EVENTS_REFUSED = "EventsRefused"
METRIC_AGENTS = "Agents"
METRIC_AGENTS_SILENT = "AgentsSilent"
METRIC_AGENTS_TROUBLED = "AgentsTroubled"
METRIC_AGENTS_RACING = "AgentsRacing"
METRIC_AGENTS_LAG = "AgentsLagSeconds"
METRIC_STREAMS_BEHIND = "StreamsBehind"
METRIC_CLAIMS = "ClaimsLanded"
METRIC_CLAIMS_THAT_CUT = "ClaimsThatCut"
METRIC_HOLES_COMMITTED = "HolesCommitted"
METRIC_OFFSETS_GIVEN_UP = "OffsetsGivenUp"
METRIC_REBALANCES = "RebalancesLanded"
METRIC_GROUPS_WRITTEN = "GroupsWritten"
METRIC_FRAGMENTS_RETIRED = "FragmentsRetired"
METRIC_BYTES_RETIRED = "BytesRetired"
METRIC_FRAGMENTS_CONSOLIDATED = "FragmentsConsolidated"
METRIC_BYTES_CONSOLIDATED = "BytesConsolidated"
METRIC_GARBAGE_OBJECTS = "GarbageObjects"
METRIC_GARBAGE_BYTES = "GarbageBytes"
METRIC_GARBAGE_DELETED = "GarbageDeleted"
METRIC_STREAMS_SWEPT = "StreamsSwept"
METRIC_OBJECTS_SWEPT = "ObjectsSwept"
METRIC_VERSIONS_ERASED = "VersionsErased"
METRIC_BYTES_ERASED = "BytesErased"
METRIC_BYTES_SWEPT = "BytesSwept"
METRIC_WORKFLOW_FAILURES = "WorkflowFailures"
METRIC_STREAMS_FAILED = "StreamsFailed"
METRIC_STREAMS_WITHOUT_ITEM = "StreamsWithoutItem"
METRIC_STREAMS_UNNAMED = "StreamsUnnamed"
METRIC_DELETES_REFUSED = "DeletesRefused"
METRIC_DIMENSION_WORKFLOW = "workflow"

# Of the Glue jobs (jobs/report.py): each once for all, and once with the dimension `job`.
METRIC_JOB_SECONDS = "JobSeconds"
METRIC_ROWS_MATERIALISED = "RowsMaterialised"
METRIC_BYTES_MATERIALISED = "BytesMaterialised"
METRIC_DEAD_LETTER_ROWS = "DeadLetterRows"
METRIC_MATERIALISE_LAG = "MaterialiseLagSeconds"
METRIC_OFFSETS_LOST = "OffsetsLost"
METRIC_SCRUB_FINDINGS = "ScrubFindings"
METRIC_CHUNKS_SCRUBBED = "ChunksScrubbed"
METRIC_BYTES_SCRUBBED = "BytesScrubbed"
METRIC_SCRUB_AGE = "ScrubOldestSeconds"
METRIC_STREAMS = "Streams"
METRIC_STREAM_BYTES = "StreamBytes"
METRIC_HOLES = "Holes"
METRIC_HOLE_OFFSETS = "HoleOffsets"
METRIC_ORPHAN_OBJECTS = "OrphanObjects"
METRIC_ORPHAN_BYTES = "OrphanBytes"
# Of the dimension `service`, which every metric of ours has, where no stack says its own name.
METRIC_SERVICE = "coldstream"
METRIC_DIMENSION_SERVICE = "service"
METRIC_DIMENSION_JOB = "job"

# One Glue job each, called <stack>-<name>; its tables have their files below <warehouse><name>/.
JOBS = ("materialise", "scrub", "profile", "rebuild", "fleet")
_SCRIPTS = {"profile": "profile_streams.py"}

#: Behind the error of an execution that has told `report` of it, or else its event would count it
#: once more. The definitions of the state machines have it, too.
ERROR_REPORTED = " (reported)"

_REASON = re.compile(r"[A-Za-z0-9_-]{1,34}")


def job_script(job: str) -> str:
    """The file in glue_jobs/ of a job: called like the job, but never like a standard module.

    The directory of a script comes first on Python's path, and PySpark imports `profile`.
    """
    return _SCRIPTS.get(job, f"{job}.py")


def check_reason(reason: str) -> None:
    """See that a reason can end the name of an execution.

    Raises:
        InvalidInputError: it has other characters than letters, digits, "_" and "-", or more than
            34 of them, or none.
    """
    if not _REASON.fullmatch(reason):
        raise InvalidInputError(f"cannot be in the name of an execution: {reason[:80]!r}")


def execution_name(workflow: str, stream: str, reason: str) -> str:
    """Name of the one execution of a workflow on a stream for a reason, such as a version.

    Step Functions runs no two executions of one name within 90 days, so whoever starts a workflow
    twice for the same reason starts it once. At most 80 of the characters that it takes.

    Raises:
        InvalidInputError: no such workflow, no stream, or a reason that `check_reason` refuses.
    """
    if workflow not in WORKFLOWS:
        raise InvalidInputError(f"no such workflow: {workflow[:80]!r}")
    check_reason(reason)
    begin = check_stream(stream)[:24].replace("=", "_")
    digest = hashlib.sha256(stream.encode()).hexdigest()[:8]
    return f"{workflow}-{begin}-{digest}-{reason}"
