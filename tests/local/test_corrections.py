"""Each correction of MiniStack has a check here, and each check fails without its correction."""

from __future__ import annotations

import io
import json
import sys
import textwrap
import time
import uuid
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import S3Store

from tests.local.conftest import LATE_CORRECTIONS
from tests.support.probe_stack import Probe, eventually

pytestmark = [pytest.mark.emulator, pytest.mark.slow]


def check_function_runtime(probe: Probe) -> None:
    """A handler runs in the chosen interpreter, in Lambda's environment, its own code first."""
    error, about = probe.invoke(do="about")

    assert error is None
    assert about["executable"] == sys.executable
    assert about["first_path"] == about["task_root"]
    assert about["environment"]["AWS_EXECUTION_ENV"] == "AWS_Lambda_python3.13"
    assert about["environment"]["WANTED"] == "1"
    assert not about["environment"].keys() & {"STATE_DIR", "PYTHONPATH", "GATEWAY_PORT"}


def check_function_errors(probe: Probe) -> None:
    """An error names the exception's class; Step Functions and people decide by it."""
    kind, error = probe.invoke(do="raise")

    assert kind == "Unhandled"
    assert (error["errorType"], error["errorMessage"]) == ("ProbeError", "on purpose")
    assert "do_raise" in error["stackTrace"][-1]
    assert error["requestId"]

    kind, error = probe.invoke("Broken")

    assert error["errorType"] == "Runtime.ImportModuleError"
    assert error["errorMessage"] == "Unable to import module 'missing': No module named 'missing'"


def check_emf_metrics(probe: Probe) -> None:
    """A log line in embedded metric format becomes metrics, one for each set of dimensions."""
    namespace = f"probe-{uuid.uuid4().hex}"
    probe.invoke(do="metrics", namespace=namespace)
    cloudwatch = probe.client("cloudwatch")

    def total(name: str, dimensions: list[dict[str, str]]) -> float:
        points = cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=dimensions,
            StartTime=datetime.now(UTC) - timedelta(minutes=5),
            EndTime=datetime.now(UTC) + timedelta(minutes=5),
            Period=3600,
            Statistics=["Sum"],
        )["Datapoints"]
        return float(sum(point["Sum"] for point in points))

    service = [{"Name": "service", "Value": "probe"}]
    assert probe.awaited(lambda: total("Fragments", service), 1) == 3
    assert total("Sizes", service) == 7


def check_whole_logs(probe: Probe) -> None:
    """The end of a function's log is known, and not guessed from a pause of 50 ms."""
    functions, name = probe.client("lambda"), probe.outputs["Function"]

    def shortest(call: Callable[[], object]) -> float:
        took = []
        for _ in range(15):
            started = time.perf_counter()
            call()
            took.append(time.perf_counter() - started)
        return min(took)

    def extra() -> float:
        """What a run takes beyond any other request to the same machine."""
        run = shortest(lambda: functions.invoke(FunctionName=name, Payload=b'{"do": "nothing"}'))
        return run - shortest(lambda: functions.get_function_configuration(FunctionName=name))

    assert probe.awaited(lambda: extra() < 0.045, 0)


def check_batch_windows(probe: Probe) -> None:
    """Messages of one window come as one batch, up to the batch size."""
    queue = probe.client("sqs")

    def sent() -> str:
        """What marks thirty messages that were sent well within a window."""
        mark, started = uuid.uuid4().hex, time.monotonic()
        for ten in range(3):
            entries = [{"Id": str(i), "MessageBody": f"ok {mark} {ten} {i}"} for i in range(10)]
            queue.send_message_batch(QueueUrl=probe.outputs["Queue"], Entries=entries)
        return mark if time.monotonic() - started < 0.5 else ""

    mark = eventually(sent)
    assert mark

    def batches() -> list[list[str]] | None:
        found = probe.batches(mark)
        return found if sum(map(len, found)) == 30 else None

    found = probe.awaited(batches, 10)
    assert found is not None
    assert [len(batch) for batch in found] == [30]


def check_malformed_batch_responses(probe: Probe) -> None:
    """An answer that names no message means that none was handled."""
    mark = uuid.uuid4().hex
    queue = probe.client("sqs")
    queue.send_message(QueueUrl=probe.outputs["Queue"], MessageBody=f"garble {mark}")

    dead = probe.awaited(lambda: _bodies(probe, "DeadLetters", mark), 9)

    assert dead == [f"garble {mark}"]
    assert len(probe.batches(mark)) == 2


def check_message_move_tasks(probe: Probe) -> None:
    """Dead letters go back to the queue they came from, to be tried as often as new ones."""
    queues = probe.client("sqs")
    name = uuid.uuid4().hex
    dead = queues.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    dead_arn = _arn(probe, dead)
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 1})
    source = queues.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    queues.send_message(QueueUrl=source, MessageBody="again")
    queues.receive_message(QueueUrl=source, VisibilityTimeout=0)
    assert not queues.receive_message(QueueUrl=source).get("Messages")

    try:
        queues.start_message_move_task(SourceArn=dead_arn)
    except queues.exceptions.ClientError as exc:
        pytest.fail(str(exc), pytrace=False)

    moved = queues.receive_message(
        QueueUrl=source, AttributeNames=["ApproximateReceiveCount"], WaitTimeSeconds=20
    )["Messages"]
    assert [one["Body"] for one in moved] == ["again"]
    assert moved[0]["Attributes"]["ApproximateReceiveCount"] == "1"


def check_stream_retries(probe: Probe) -> None:
    """A record that fails is given up after its retries, and those beside and behind it go on."""
    mark, table = uuid.uuid4().hex, probe.client("dynamodb")
    for state in ("live", "deleting"):
        for name in (f"ok-{mark}", f"fail-{mark}", f"later-{mark}"):
            table.put_item(
                TableName=probe.outputs["Table"], Item={"name": {"S": name}, "state": {"S": state}}
            )

    def seen() -> set[str]:
        return {name for batch in probe.records(mark) for name in batch}

    probe.awaited(lambda: f"later-{mark}" in seen(), 8)
    assert seen() == {f"ok-{mark}", f"fail-{mark}", f"later-{mark}"}
    missed = probe.awaited(lambda: _messages(probe, "Missed"), 8)
    assert [json.loads(one)["DDBStreamBatchInfo"]["batchSize"] for one in missed] == [1]
    alone = [batch for batch in probe.records(mark) if batch == [f"fail-{mark}"]]
    assert len(alone) == 2


def check_map_batches(probe: Probe) -> None:
    """A Distributed Map with an ItemBatcher gives each child its share and what all share."""
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "Echo",
        "States": {"Echo": {"Type": "Pass", "End": True}},
    }
    ended = _run_machine(
        probe,
        {
            "Type": "Map",
            "ItemsPath": "$.work",
            "ItemBatcher": {"MaxItemsPerBatch": 2, "BatchInput": {"dry.$": "$.dry"}},
            "ItemProcessor": processor,
            "End": True,
        },
        {"work": [1, 2, 3], "dry": True},
    )

    assert json.loads(ended["output"]) == [
        {"BatchInput": {"dry": True}, "Items": [1, 2]},
        {"BatchInput": {"dry": True}, "Items": [3]},
    ]


def check_machine_timeouts(probe: Probe) -> None:
    """An execution ends when its machine's time is over, whatever it waits for."""
    ended = _run_machine(probe, {"Type": "Wait", "Seconds": 3, "End": True}, {}, TimeoutSeconds=1)

    assert ended["status"] == "TIMED_OUT"


def check_retry_delays(probe: Probe) -> None:
    """A retry waits no longer than MaxDelaySeconds; its errors are known by their class."""
    ended = _run_machine(
        probe,
        {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {
                "FunctionName": probe.outputs["Function"],
                "Payload": {"do": "raise"},
            },
            "Retry": [
                {
                    "ErrorEquals": ["ProbeError"],
                    "IntervalSeconds": 1,
                    "BackoffRate": 1000,
                    "MaxAttempts": 2,
                    "MaxDelaySeconds": 2,
                    "JitterStrategy": "FULL",
                }
            ],
            "End": True,
        },
        {},
    )

    assert ended["status"] == "FAILED"
    assert ended["error"] == "ProbeError"


def check_fast_checksums(probe: Probe) -> None:
    """A checksum sent along costs nothing that an upload of 64 MiB would feel."""
    store = S3Store(
        probe.outputs["Bucket"],
        config={
            "endpoint": probe.emulator.endpoint,
            "access_key_id": "local",
            "secret_access_key": "local",
            "region": "us-east-1",
            "checksum_algorithm": "CRC64NVME",
        },
        client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
    )
    body = b"x" * (24 << 20)

    def duration() -> float:
        started = time.perf_counter()
        obstore.put(store, "large", body, use_multipart=False)
        return time.perf_counter() - started

    assert probe.awaited(lambda: duration() < 1.5, 0)


def check_range_reads(probe: Probe) -> None:
    """A range costs what it has, however large the object around it."""
    store, bucket = probe.client("s3"), probe.outputs["Bucket"]
    for key, size in (("small", 1 << 10), ("large", 64 << 20)):
        store.put_object(Bucket=bucket, Key=key, Body=bytes(size))

    def duration(key: str) -> float:
        started = time.perf_counter()
        store.get_object(Bucket=bucket, Key=key, Range="bytes=100-109")["Body"].read()
        return time.perf_counter() - started

    def alike() -> bool:
        small, large = (min(duration(key) for _ in range(20)) for key in ("small", "large"))
        return large < 3 * small

    assert probe.awaited(alike, 0)


def check_spark_jobs(probe: Probe) -> None:
    """A job's script runs with its modules and arguments, and its end and its log tell how."""
    job = _job(
        probe,
        """
        import json, os, sys
        import helper
        print("said", json.dumps({"argv": sys.argv[1:], "helper": helper.WORD}))
        assert "local[2]" in os.environ["PYSPARK_SUBMIT_ARGS"]
        assert "STATE_DIR" not in os.environ
        if "--fail" in sys.argv:
            raise ValueError("on purpose")
        """,
        DefaultArguments={"--word": "default", "--other": "kept"},
    )

    done = _run_job(probe, job, {"--word": "given"})
    failed = _run_job(probe, job, {"--fail": "yes"})

    assert (failed["JobRunState"], failed.get("ErrorMessage")) == (
        "FAILED",
        "ValueError: on purpose",
    )
    assert done["JobRunState"] == "SUCCEEDED", done["ErrorMessage"]
    log = probe.client("logs").get_log_events(
        logGroupName="/aws-glue/jobs/output", logStreamName=done["Id"]
    )["events"]
    said = json.loads(log[0]["message"].removeprefix("said "))
    given = dict(zip(said["argv"][::2], said["argv"][1::2], strict=True))
    assert said["helper"] == "word"
    assert (given["--word"], given["--other"]) == ("given", "kept")
    assert (given["--JOB_NAME"], given["--JOB_RUN_ID"]) == (job, done["Id"])


def check_scheduled_job_runs(probe: Probe) -> None:
    """A schedule starts a job by Scheduler's universal target, with arguments."""
    job = _job(probe, "import sys; assert '--by' in sys.argv")
    probe.client("scheduler").create_schedule(
        Name=uuid.uuid4().hex,
        ScheduleExpression=f"at({datetime.now(UTC):%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:glue:startJobRun",
            "RoleArn": "arn:aws:iam::000000000000:role/any",
            "Input": json.dumps({"JobName": job, "Arguments": {"--by": "schedule"}}),
        },
    )

    def runs() -> Any:
        return probe.client("glue").get_job_runs(JobName=job)["JobRuns"]

    assert [each["Arguments"] for each in probe.awaited(runs, 15)] == [{"--by": "schedule"}]


def check_named_queries(probe: Probe) -> None:
    """A stack can have saved queries."""
    cloudformation, stack = probe.client("cloudformation"), f"queries-{uuid.uuid4().hex}"
    query = {"Database": "default", "Name": stack, "QueryString": "SELECT 1"}
    template = {"Resources": {"Q": {"Type": "AWS::Athena::NamedQuery", "Properties": query}}}

    try:
        cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    except cloudformation.exceptions.ClientError as exc:
        pytest.fail(str(exc), pytrace=False)

    def saved() -> list[str]:
        athena = probe.client("athena")
        ids = athena.list_named_queries()["NamedQueryIds"]
        found = athena.batch_get_named_query(NamedQueryIds=ids)["NamedQueries"] if ids else []
        return [each["QueryString"] for each in found if each["Name"] == stack]

    assert probe.awaited(saved, 5) == ["SELECT 1"]


def check_saved_log_queries(probe: Probe) -> None:
    """A stack can have saved queries of Logs Insights."""
    cloudformation, stack = probe.client("cloudformation"), f"queries-{uuid.uuid4().hex}"
    query = {"Name": stack, "QueryString": "fields @message"}
    template = {"Resources": {"Q": {"Type": "AWS::Logs::QueryDefinition", "Properties": query}}}

    try:
        cloudformation.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    except cloudformation.exceptions.ClientError as exc:
        pytest.fail(str(exc), pytrace=False)

    def made() -> bool:
        (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
        return bool(found["StackStatus"] == "CREATE_COMPLETE")

    assert probe.awaited(made, 5)


def check_deleted_partitions(probe: Probe) -> None:
    """Partitions of a table are deleted, many in one request, and the others stay."""
    glue, name = probe.client("glue"), f"p{uuid.uuid4().hex}"
    table = {"DatabaseName": name, "TableName": "t"}
    glue.create_database(DatabaseInput={"Name": name})
    keys = [{"Name": "day", "Type": "string"}]
    glue.create_table(DatabaseName=name, TableInput={"Name": "t", "PartitionKeys": keys})
    days = [{"Values": [day]} for day in ("1", "2", "3")]
    glue.batch_create_partition(**table, PartitionInputList=days)

    try:
        glue.batch_delete_partition(**table, PartitionsToDelete=days[:2])
    except glue.exceptions.ClientError as exc:
        pytest.fail(str(exc), pytrace=False)

    left = glue.get_partitions(**table)["Partitions"]
    assert [each["Values"] for each in left] == [["3"]]


def check_billing(probe: Probe) -> None:
    """Transitions of machines and runs of functions are counted."""

    def count(name: str) -> float:
        there = urlsplit(probe.client("sqs").meta.endpoint_url)
        with closing(HTTPConnection(there.hostname or "", there.port)) as connection:
            connection.request("GET", "/_localaws/counts")
            return float(json.load(connection.getresponse()).get(name, 0))

    before = count("states.Transition")
    _run_machine(probe, {"Type": "Succeed"}, {})

    assert count("states.Transition") == before + 1


CHECKS: dict[str, Callable[[Probe], None]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_embedded_aws_does_as_aws_does(name: str, probe: Probe) -> None:
    CHECKS[name](probe)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_check_of_a_correction_fails_without_it(name: str, uncorrected: Probe) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        CHECKS[name](uncorrected)


def test_every_correction_that_can_be_switched_off_here_has_a_check() -> None:
    assert set(CHECKS) == set(LATE_CORRECTIONS.split(","))


def _bodies(probe: Probe, queue: str, mark: str) -> list[str]:
    found = probe.client("sqs").receive_message(
        QueueUrl=probe.outputs[queue], MaxNumberOfMessages=10, VisibilityTimeout=0
    )
    return [one["Body"] for one in found.get("Messages", []) if mark in one["Body"]]


def _messages(probe: Probe, queue: str) -> list[str]:
    found = probe.client("sqs").receive_message(
        QueueUrl=probe.outputs[queue], MaxNumberOfMessages=10, VisibilityTimeout=0
    )
    return [one["Body"] for one in found.get("Messages", [])]


def _run_machine(
    probe: Probe, state: dict[str, object], document: dict[str, object], **more: object
) -> dict[str, Any]:
    """Run a machine of one state; what is known of it, without corrections after six seconds."""
    machines = probe.client("stepfunctions")
    machine = machines.create_state_machine(
        name=uuid.uuid4().hex,
        definition=json.dumps({"StartAt": "Only", "States": {"Only": state}, **more}),
        roleArn="arn:aws:iam::000000000000:role/machine",
    )["stateMachineArn"]
    arn = machines.start_execution(stateMachineArn=machine, input=json.dumps(document))[
        "executionArn"
    ]

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = machines.describe_execution(executionArn=arn)
        return None if found["status"] == "RUNNING" else found

    return probe.awaited(ended, 6) or {"status": "RUNNING", "output": "null"}


def _job(probe: Probe, script: str, **more: Any) -> str:
    """A Glue job of a script, with a module beside it."""
    name, store, bucket = uuid.uuid4().hex, probe.client("s3"), probe.outputs["Bucket"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("helper.py", "WORD = 'word'")
    store.put_object(Bucket=bucket, Key=f"{name}.py", Body=textwrap.dedent(script).encode())
    store.put_object(Bucket=bucket, Key=f"{name}.zip", Body=packed.getvalue())
    arguments = {
        "--extra-py-files": f"s3://{bucket}/{name}.zip",
        **more.pop("DefaultArguments", {}),
    }
    probe.client("glue").create_job(
        Name=name,
        Role="arn:aws:iam::000000000000:role/any",
        Command={"Name": "glueetl", "ScriptLocation": f"s3://{bucket}/{name}.py"},
        GlueVersion="6.0",
        DefaultArguments=arguments,
        **more,
    )
    return name


def _run_job(probe: Probe, job: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Run a job; give what is known of the run: without corrections, after ten seconds."""
    glue = probe.client("glue")
    run_id = glue.start_job_run(JobName=job, Arguments=arguments)["JobRunId"]

    def ended() -> dict[str, Any] | None:
        run: dict[str, Any] = glue.get_job_run(JobName=job, RunId=run_id)["JobRun"]
        return None if run["JobRunState"] in ("STARTING", "RUNNING") else run

    return probe.awaited(ended, 10) or {"JobRunState": "RUNNING"}


def _arn(probe: Probe, url: str) -> str:
    attributes = probe.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(attributes["Attributes"]["QueueArn"])
