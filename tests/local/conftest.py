"""Servers with and without our corrections, and a small stack on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream_devkit.emulator import Emulator, serving
from tests.support.probe_stack import Probe, deploy_probe

# All that can be switched off on a server that is otherwise like the other one. The rest have
# servers of their own in test_durability and test_loopback.
LATE_CORRECTIONS = (
    "function_runtime,function_errors,emf_metrics,whole_logs,batch_windows,"
    "malformed_batch_responses,message_move_tasks,fast_checksums,range_reads,"
    "stream_retries,map_batches,machine_timeouts,retry_delays,spark_jobs,scheduled_job_runs,"
    "named_queries,saved_log_queries,deleted_partitions,billing"
)


@pytest.fixture(scope="session")
def probe(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    deployment = deploy_probe(emulator.server, tmp_path_factory.mktemp("assembly"))
    return Probe(emulator, deployment.outputs)


@pytest.fixture(scope="session")
def uncorrected(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Probe]:
    """The same stack on a server without our corrections."""
    state_dir = tmp_path_factory.mktemp("uncorrected")
    with serving(pytestconfig.rootpath, state_dir, skip=LATE_CORRECTIONS) as emulator:
        deployment = deploy_probe(emulator.server, tmp_path_factory.mktemp("assembly"))
        yield Probe(emulator, deployment.outputs, corrected=False)
