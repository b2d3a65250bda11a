"""How a Glue job ends here: failed, tried again, stopped, out of time, or with the server."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from coldstream_devkit.emulator import Emulator
from coldstream_devkit.local import process
from coldstream_devkit.local.progress import silent
from tests.support.probe_stack import eventually

# The server's interpreter has this on its path; what is imported here needs nothing else of it.
sys.path.insert(0, str(Path(process.__file__).parent / "server"))
try:
    from localaws import glue_process  # type: ignore[import-not-found]
finally:
    sys.path.pop(0)

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def job(emulator: Emulator) -> Callable[..., str]:
    """Make a job of a script."""
    emulator.client("s3").create_bucket(Bucket="scripts")

    def make(script: str, **properties: Any) -> str:
        name = uuid.uuid4().hex
        emulator.client("s3").put_object(
            Bucket="scripts", Key=f"{name}.py", Body=textwrap.dedent(script).encode()
        )
        emulator.client("glue").create_job(
            Name=name,
            Role="arn:aws:iam::000000000000:role/any",
            Command={"Name": "glueetl", "ScriptLocation": f"s3://scripts/{name}.py"},
            **properties,
        )
        return name

    return make


def runs(emulator: Emulator, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = emulator.client("glue").get_job_runs(JobName=job)["JobRuns"]
    return found


def states(emulator: Emulator, job: str) -> list[str]:
    return [each["JobRunState"] for each in runs(emulator, job)]


def ended(emulator: Emulator, job: str, count: int = 1) -> list[str]:
    """The states of a job's runs when there are so many and all have ended."""

    def look() -> list[str] | None:
        found = states(emulator, job)
        return found if len(found) == count and not {"STARTING", "RUNNING"} & {*found} else None

    return eventually(look) or states(emulator, job)


def processes(emulator: Emulator, name: str) -> list[psutil.Process]:
    """The processes that the server has started for a job."""
    found = []
    for each in psutil.Process(emulator.server.pid).children(recursive=True):
        # A child may end between the list and the look at it.
        with suppress(psutil.NoSuchProcess):
            if name in " ".join(each.cmdline()):
                found.append(each)
    return found


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.emulator
def test_a_failed_run_is_tried_again_as_often_as_the_job_allows(
    emulator: Emulator, job: Callable[..., str]
) -> None:
    name = job("raise SystemExit(3)", MaxRetries=1)
    run_id = emulator.client("glue").start_job_run(JobName=name)["JobRunId"]

    assert ended(emulator, name, 2) == ["FAILED", "FAILED"]
    assert [each["Id"] for each in runs(emulator, name)] == [run_id, f"{run_id}_attempt_1"]
    assert runs(emulator, name)[0]["ErrorMessage"] == "exit code 3"


@pytest.mark.emulator
def test_a_second_run_at_once_is_refused_unless_the_job_allows_it(
    emulator: Emulator, job: Callable[..., str]
) -> None:
    glue = emulator.client("glue")
    one, two = job(SLEEP), job(SLEEP, ExecutionProperty={"MaxConcurrentRuns": 2})
    started = [(each, glue.start_job_run(JobName=each)["JobRunId"]) for each in (one, two, two)]

    with pytest.raises(glue.exceptions.ConcurrentRunsExceededException):
        glue.start_job_run(JobName=one)

    for name, run_id in started:
        glue.batch_stop_job_run(JobName=name, JobRunIds=[run_id])
    assert ended(emulator, two, 2) == ["STOPPED", "STOPPED"]


@pytest.mark.emulator
def test_a_stopped_run_leaves_no_process(emulator: Emulator, job: Callable[..., str]) -> None:
    glue, name = emulator.client("glue"), job(SLEEP)
    run_id = glue.start_job_run(JobName=name)["JobRunId"]
    assert eventually(lambda: processes(emulator, name))

    glue.batch_stop_job_run(JobName=name, JobRunIds=[run_id])

    assert eventually(lambda: not processes(emulator, name))
    assert ended(emulator, name) == ["STOPPED"]
    assert glue.batch_stop_job_run(JobName=name, JobRunIds=[run_id])["Errors"]


@pytest.mark.emulator
@pytest.mark.parametrize("location", ["s3://scripts/absent.py", "file:///etc/passwd", ""])
def test_a_script_that_is_not_there_fails_the_run(
    emulator: Emulator, job: Callable[..., str], location: str
) -> None:
    name, glue = job(SLEEP), emulator.client("glue")
    glue.update_job(
        JobName=name, JobUpdate={"Command": {"Name": "glueetl", "ScriptLocation": location}}
    )
    glue.start_job_run(JobName=name)

    assert ended(emulator, name) == ["FAILED"]
    assert location in runs(emulator, name)[0]["ErrorMessage"]


@pytest.mark.emulator
def test_the_end_of_a_run_is_an_event(emulator: Emulator, job: Callable[..., str]) -> None:
    name = job("raise ValueError('on purpose')")
    queue = emulator.client("sqs").create_queue(QueueName=name)["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:000000000000:{name}"
    events = emulator.client("events")
    events.put_rule(
        Name=name,
        EventPattern=json.dumps(
            {"source": ["aws.glue"], "detail": {"state": ["FAILED"], "jobName": [name]}}
        ),
    )
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    emulator.client("glue").start_job_run(JobName=name)

    def messages() -> list[dict[str, Any]]:
        answer = emulator.client("sqs").receive_message(QueueUrl=queue, WaitTimeSeconds=5)
        return list(answer.get("Messages", []))

    assert "ValueError: on purpose" in eventually(messages)[0]["Body"]


@pytest.mark.emulator
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_run_ends_with_the_server_however_that_ends(
    pytestconfig: pytest.Config, tmp_path: Path, how: str
) -> None:
    server = process.start(pytestconfig.rootpath, tmp_path, exit_with_parent=True, progress=silent)
    emulator = Emulator(server, pytestconfig.rootpath)
    try:
        store, glue = emulator.client("s3"), emulator.client("glue")
        store.create_bucket(Bucket="scripts")
        store.put_object(Bucket="scripts", Key="sleep.py", Body=SLEEP.encode())
        command = {"Name": "glueetl", "ScriptLocation": "s3://scripts/sleep.py"}
        glue.create_job(Name="sleep", Role="arn:aws:iam::0:role/any", Command=command)
        glue.start_job_run(JobName="sleep")
        (running,) = eventually(lambda: processes(emulator, "sleep.py"))

        if how == "kill":
            psutil.Process(server.pid).kill()
        else:
            process.stop(tmp_path)

        assert eventually(lambda: has_ended(running))
    finally:
        process.stop(tmp_path)


def test_a_run_does_not_start_when_the_server_ended_before_the_run_could_know(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    words = glue_process.command(sys.executable, script, {})
    # Its parent is not this process, which stands for the server, but one in between.
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"

    here = subprocess.run(words, capture_output=True, check=False)
    orphan = subprocess.run(
        [sys.executable, "-c", between, *words], capture_output=True, check=False
    )

    assert (here.returncode, here.stdout) == (0, b"ran\n")
    assert (orphan.returncode, orphan.stdout) == (1, b"")


def test_a_run_whose_time_is_over_is_killed_and_says_so(tmp_path: Path) -> None:
    told: list[tuple[str, bytes]] = []
    started = time.monotonic()

    ended = glue_process.run(
        ["sh", "-c", "echo up; exec sleep 60"],  # up long before its time is over
        {},
        tmp_path,
        limit_seconds=3,
        stopped=lambda: False,
        log=lambda name, new: told.append((name, new)),
    )

    assert ended == glue_process.Ended("TIMEOUT", "Job timed out")
    assert time.monotonic() - started < 60
    assert told == [("output", b"up\n")]


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ("", "exit code 1"),
        ("WARN something\nKilled\n", "Killed"),
        (
            "Traceback (most recent call last):\n  File\n    x\nKeyError: 'a'\n26/11 INFO bye\n",
            "KeyError: 'a'",
        ),
        (
            "Traceback (most recent call last):\n  File\nKeyError: 'a'\n\nDuring handling\n\n"
            "Traceback (most recent call last):\n  File\nValueError: b\n",
            "ValueError: b",
        ),
        ("Traceback (most recent call last):\n  File\n", "exit code 1"),
    ],
)
def test_the_error_of_a_run_is_that_of_its_last_traceback(errors: str, message: str) -> None:
    assert glue_process.reason(errors, 1) == message
