"""The list of corrections: what MiniStack 1.5.33 lacks or does differently from AWS.

Each is one function whose docstring says what AWS does and what MiniStack does. Each has a check in
tests/local that fails when the correction is left out (`COLDSTREAM_LOCAL_SKIP=name,name`).
"""

from __future__ import annotations

from collections.abc import Callable

from .counting import billing
from .durability import snapshots
from .functions import function_errors, function_runtime, saved_log_queries, whole_logs
from .glue import deleted_partitions, named_queries, scheduled_job_runs, spark_jobs
from .loopback import loopback_only
from .machines import machine_timeouts, map_batches, retry_delays
from .metrics import emf_metrics
from .options import Options
from .queues import batch_windows, malformed_batch_responses, message_move_tasks
from .storage import fast_checksums, range_reads, whole_objects
from .streams import kept_streams, stream_retries

Correction = Callable[[Options], None]

# Before MiniStack is imported: it opens files and sockets while it is.
EARLY: tuple[Correction, ...] = (loopback_only, whole_objects)

LATE: tuple[Correction, ...] = (
    function_runtime,
    function_errors,
    emf_metrics,
    whole_logs,
    batch_windows,
    malformed_batch_responses,
    message_move_tasks,
    stream_retries,
    map_batches,
    machine_timeouts,
    retry_delays,
    spark_jobs,
    scheduled_job_runs,
    named_queries,
    saved_log_queries,
    deleted_partitions,
    fast_checksums,
    range_reads,
    kept_streams,
    snapshots,
    billing,
)

NAMES = frozenset(correction.__name__ for correction in (*EARLY, *LATE))


def apply(corrections: tuple[Correction, ...], options: Options) -> None:
    """Apply those that are not to be skipped.

    Raises:
        ValueError: `options.skip` names one that does not exist.
    """
    unknown = options.skip - NAMES
    if unknown:
        raise ValueError(f"no such correction: {', '.join(sorted(unknown))}")
    for correction in corrections:
        if correction.__name__ not in options.skip:
            correction(options)
