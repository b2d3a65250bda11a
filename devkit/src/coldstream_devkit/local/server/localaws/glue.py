"""Glue: Spark jobs that run, the schedule that starts them, and the queries saved beside them."""

from __future__ import annotations

import contextvars
import http.client
import json
import os
import secrets
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import glue_process
from .options import Options

_ENDED = frozenset({"SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED", "ERROR"})
_LOGS = "/aws-glue/jobs"
_ONCE: dict[str, int] = {"MaxConcurrentRuns": 1}
_SCHEDULED = "aws-sdk:glue:startJobRun"
_LONGEST_LINE = 200_000


def spark_jobs(options: Options) -> None:
    """Run the script of a Glue job, and tell how it ended.

    AWS: StartJobRun runs the script on Spark with the arguments of the job, of the run and Glue's
    own, as often as MaxConcurrentRuns allows at once and MaxRetries says after a failure; it puts
    its output into CloudWatch Logs, ends it after Timeout minutes or when it is stopped, and sends
    an event when it has ended. MiniStack: without Docker, every run has SUCCEEDED at once and
    nothing was run. Here it is a process with the interpreter of the functions, which must have
    pyspark, on two local cores; --additional-python-modules are taken for installed.
    """
    from ministack.services import glue
    from ministack.services.cloudformation import provisioners

    provisioners._GLUE_JOB_DEFAULTS = {
        **provisioners._GLUE_JOB_DEFAULTS,
        "ExecutionProperty": _ONCE,
    }
    create, update, restore, stop = (
        glue._create_job,
        glue._update_job,
        glue._restore_state,
        glue._batch_stop_job_run,
    )

    def create_job(data: dict[str, Any]) -> Any:
        answer = create(data)
        if answer[0] == 200:
            glue._jobs[data["Name"]]["ExecutionProperty"] = data.get("ExecutionProperty") or _ONCE
        return answer

    def update_job(data: dict[str, Any]) -> Any:
        answer = update(data)
        if answer[0] == 200:
            changed = data.get("JobUpdate", {}).get("ExecutionProperty")
            job = glue._jobs[data["JobName"]]
            job["ExecutionProperty"] = changed or job.get("ExecutionProperty") or _ONCE
        return answer

    def restore_state(data: dict[str, Any]) -> None:
        restore(data)
        # Processes do not live on in a snapshot.
        for runs in glue._job_runs._data.values():
            for run in runs:
                if run["JobRunState"] not in _ENDED:
                    run.update(JobRunState="ERROR", ErrorMessage="the embedded AWS was stopped")

    def stop_runs(data: dict[str, Any]) -> Any:
        answer = stop(data)
        for each in json.loads(answer[2])["SuccessfulSubmissions"]:
            for run in glue._job_runs[each["JobName"]]:
                if run["Id"] == each["JobRunId"]:
                    _announce(run, glue_process.Ended("STOPPED"))
        return answer

    def start_job_run(data: dict[str, Any]) -> Any:
        return _start(data, options)

    glue._create_job = create_job
    glue._update_job = update_job
    glue._restore_state = restore_state
    glue._batch_stop_job_run = stop_runs
    glue._start_job_run = start_job_run


def _start(data: dict[str, Any], options: Options) -> Any:
    from ministack.core.responses import error_response_json, json_response
    from ministack.services import glue

    name = data.get("JobName")
    job = glue._jobs.get(name)
    if job is None:
        return error_response_json("EntityNotFoundException", f"Job {name} not found", 400)
    runs = glue._job_runs.setdefault(name, [])
    most = int(job.get("ExecutionProperty", _ONCE).get("MaxConcurrentRuns", 1))
    if sum(run["JobRunState"] not in _ENDED for run in runs) >= most:
        return error_response_json(
            "ConcurrentRunsExceededException", f"Concurrent runs exceeded for {name}", 400
        )
    run = _new_run(job, data, f"jr_{secrets.token_hex(32)}", 0)
    runs.append(run)

    def work() -> None:
        current = run
        while True:
            _finish(current, _perform(job, current, options))
            again = current["Attempt"] + 1
            if current["JobRunState"] != "FAILED" or again > int(job.get("MaxRetries") or 0):
                return
            current = _new_run(job, data, f"{run['Id']}_attempt_{again}", again)
            runs.append(current)

    # A thread begins without the account and region that everything is looked up in.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="localaws-glue", daemon=True).start()
    return json_response({"JobRunId": run["Id"]})


def _new_run(
    job: dict[str, Any], data: dict[str, Any], run_id: str, attempt: int
) -> dict[str, Any]:
    now = time.time()
    return {
        "Id": run_id,
        "Attempt": attempt,
        "JobName": job["Name"],
        "StartedOn": now,
        "LastModifiedOn": now,
        "JobRunState": "STARTING",
        "Arguments": data.get("Arguments", {}),
        "PredecessorRuns": [],
        "ExecutionTime": 0,
        "Timeout": int(data.get("Timeout") or job.get("Timeout") or 2880),
        "WorkerType": data.get("WorkerType") or job.get("WorkerType", "G.1X"),
        "NumberOfWorkers": int(data.get("NumberOfWorkers") or job.get("NumberOfWorkers") or 2),
        "LogGroupName": _LOGS,
        "GlueVersion": job.get("GlueVersion", ""),
    }


def _perform(job: dict[str, Any], run: dict[str, Any], options: Options) -> glue_process.Ended:
    """Fetch the files of a job and run it."""
    endpoint = f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}"
    work = Path(tempfile.mkdtemp(prefix="glue-"))
    arguments = {
        **job.get("DefaultArguments", {}),
        "--JOB_NAME": job["Name"],
        "--JOB_ID": "j_" + "0" * 64,
        "--JOB_RUN_ID": run["Id"],
        "--TempDir": f"file://{work}",
        **run["Arguments"],
        **job.get("NonOverridableArguments", {}),
    }
    try:
        (work / "modules").mkdir()
        script = _fetch(job["Command"].get("ScriptLocation", ""), work, endpoint)
        modules = [
            _fetch(each.strip(), work / "modules", endpoint)
            for each in arguments.get("--extra-py-files", "").split(",")
            if each.strip()
        ]
        if run["JobRunState"] != "STOPPED":
            run.update(JobRunState="RUNNING", LastModifiedOn=time.time())
        python = options.python_of_runtime.get(f"glue{run['GlueVersion']}", options.python)
        return glue_process.run(
            glue_process.command(python, script, arguments),
            glue_process.environment(
                python=python, work=work, modules=modules, arguments=arguments, aws=endpoint
            ),
            work,
            limit_seconds=60.0 * run["Timeout"],
            stopped=lambda: bool(run["JobRunState"] == "STOPPED"),
            log=_logger(arguments.get("--custom-logGroup-prefix") or _LOGS, run["Id"]),
        )
    except (OSError, ValueError, http.client.HTTPException) as exc:
        return glue_process.Ended("FAILED", f"{type(exc).__name__}: {exc}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch(location: str, directory: Path, endpoint: str) -> Path:
    """A file out of the emulated S3, under its own name."""
    bucket, _, key = location.removeprefix("s3://").partition("/")
    if not location.startswith("s3://") or not key:
        raise ValueError(f"not the place of a file in S3: {location!r}")
    path = directory / key.rsplit("/", 1)[-1]
    # The environment may name a proxy, which knows nothing of our loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{endpoint}/{bucket}/{urllib.parse.quote(key)}", timeout=30) as answer:
            path.write_bytes(answer.read())
    except urllib.error.HTTPError as exc:
        raise ValueError(f"cannot read {location}: {exc.code}") from exc
    return path


def _finish(run: dict[str, Any], ended: glue_process.Ended) -> None:
    now = time.time()
    stopped = run["JobRunState"] == "STOPPED"
    if not stopped:
        run["JobRunState"] = ended.state
    run.update(CompletedOn=now, LastModifiedOn=now, ExecutionTime=int(now - run["StartedOn"]))
    if ended.message and not stopped:
        run["ErrorMessage"] = ended.message
    if not stopped:
        _announce(run, ended)


def _announce(run: dict[str, Any], ended: glue_process.Ended) -> None:
    """Send "Glue Job State Change" to the default bus."""
    from ministack.services import eventbridge

    detail = {
        "jobName": run["JobName"],
        "severity": "INFO" if ended.state in ("SUCCEEDED", "STOPPED") else "ERROR",
        "state": ended.state,
        "jobRunId": run["Id"],
        "message": ended.message or f"Job run {ended.state.lower()}",
    }
    entry = {
        "Source": "aws.glue",
        "DetailType": "Glue Job State Change",
        "Detail": json.dumps(detail),
    }
    eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def _logger(prefix: str, run_id: str) -> Callable[[str, bytes], None]:
    """Puts the output of a run into its log streams."""
    from ministack.services import cloudwatch_logs as logs

    known: set[str] = set()

    def log(name: str, new: bytes) -> None:
        group = f"{prefix}/{name}"
        if name not in known:
            known.add(name)
            # That one of them is there already is fine.
            logs._create_log_group({"logGroupName": group})
            logs._create_log_stream({"logGroupName": group, "logStreamName": run_id})
        now = int(time.time() * 1000)
        events = [
            {"timestamp": now, "message": line[:_LONGEST_LINE]}
            for line in new.decode(errors="replace").splitlines()
            if line
        ]
        if events:
            logs._put_log_events(
                {"logGroupName": group, "logStreamName": run_id, "logEvents": events}
            )

    return log


def scheduled_job_runs(_: Options) -> None:
    """Let a schedule start a Glue job.

    AWS: EventBridge Scheduler calls any API with its universal target, the input of which is the
    request. MiniStack: knows some kinds of targets only, and takes this one for an invalid ARN.
    """
    from ministack.services import eventbridge, glue

    invoke = eventbridge._invoke_target

    def invoke_target(target: dict[str, Any], event: Any, rule: Any, view: Any = None) -> Any:
        arn = str(target.get("Arn", ""))
        if ":scheduler:" in arn and arn.endswith(_SCHEDULED):
            return glue._start_job_run(json.loads(target.get("Input") or "{}"))
        return invoke(target, event, rule, view)

    eventbridge._invoke_target = invoke_target


def named_queries(_: Options) -> None:
    """Create the saved queries of a stack.

    AWS: CloudFormation has AWS::Athena::NamedQuery, each change of which makes a new one.
    MiniStack: has the API, and refuses the type.
    """
    from ministack.services import athena
    from ministack.services.cloudformation import provisioners

    def create(logical_id: str, props: dict[str, Any], stack: str) -> Any:
        given = {"Name": props.get("Name") or f"{stack}-{logical_id}", **props}
        query_id = json.loads(athena._create_named_query(given)[2])["NamedQueryId"]
        return query_id, {"NamedQueryId": query_id}

    def update(query_id: str, old: dict[str, Any], props: dict[str, Any], stack: str) -> Any:
        made = create(query_id, props, stack)
        delete(query_id, old)
        return made

    def delete(query_id: str, _: dict[str, Any]) -> None:
        athena._delete_named_query({"NamedQueryId": query_id})

    provisioners._RESOURCE_HANDLERS["AWS::Athena::NamedQuery"] = {
        "create": create,
        "update": update,
        "delete": delete,
    }


def deleted_partitions(_: Options) -> None:
    """Delete many partitions of a table at once.

    AWS: BatchDeletePartition takes up to 25 of them. MiniStack: knows DeletePartition only.
    """
    from ministack.core.responses import json_response
    from ministack.services import glue

    handle = glue._handle_request_sync

    def handle_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: Any
    ) -> Any:
        if not headers.get("x-amz-target", "").endswith(".BatchDeletePartition"):
            return handle(method, path, headers, body, query)
        data = json.loads(body)
        for each in data["PartitionsToDelete"]:
            table = {name: data[name] for name in ("DatabaseName", "TableName")}
            glue._delete_partition({**table, "PartitionValues": each["Values"]})
        return json_response({"Errors": []})

    glue._handle_request_sync = handle_request
