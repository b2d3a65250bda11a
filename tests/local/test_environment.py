"""The embedded AWS as a user meets it: up, env, status, down, with the real CDK app in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from coldstream import deployment, names
from coldstream.errors import InvalidInputError, NotFoundError
from coldstream_devkit.local import environment
from coldstream_devkit.local.environment import LocalAws
from coldstream_devkit.local.progress import silent

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environment") / "state"


@pytest.fixture(scope="module")
def local(pytestconfig: pytest.Config, state_dir: Path) -> Iterator[LocalAws]:
    yield environment.up(pytestconfig.rootpath, port=0, state_dir=state_dir, progress=silent)
    environment.down(pytestconfig.rootpath, state_dir=state_dir, progress=silent)


def test_up_twice_finds_everything_there(
    local: LocalAws, pytestconfig: pytest.Config, state_dir: Path
) -> None:
    said: list[str] = []

    again = environment.up(pytestconfig.rootpath, state_dir=state_dir, progress=said.append)

    assert (again.server, again.outputs) == (local.server, local.outputs)
    assert (again.started, again.change) == (False, "unchanged")
    assert "already up" in said[0]


def test_two_that_start_it_at_once_end_up_with_the_same_one(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    root, state_dir = pytestconfig.rootpath, tmp_path / "state"

    def up(_: int) -> LocalAws:
        return environment.up(root, port=0, state_dir=state_dir, progress=silent)

    try:
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(up, range(2))
    finally:
        environment.down(root, state_dir=state_dir, progress=silent)

    assert one.server == two.server
    assert one.outputs == two.outputs
    assert sorted([one.started, two.started]) == [False, True]


def test_the_environment_points_any_aws_sdk_at_the_stack(
    local: LocalAws,
    pytestconfig: pytest.Config,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = environment.environment(pytestconfig.rootpath, state_dir=state_dir)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    boto3.session.Session().client("s3").head_bucket(Bucket=variables[deployment.ENV_BUCKET])
    table = (
        boto3.session.Session()
        .client("dynamodb")
        .describe_table(TableName=variables[deployment.ENV_TABLE])
    )
    assert table["Table"]["TableStatus"] == "ACTIVE"
    boto3.session.Session().client("sqs").get_queue_attributes(
        QueueUrl=variables[deployment.ENV_QUEUE_URL]
    )
    assert variables[deployment.ENV_PREFIX] == names.DEFAULT_PREFIX
    assert variables["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert variables == local.environment()


def test_status_tells_what_runs(
    local: LocalAws, pytestconfig: pytest.Config, state_dir: Path
) -> None:
    status = environment.status(pytestconfig.rootpath, state_dir=state_dir)

    assert status.running
    assert status.server == local.server
    assert status.outputs == local.outputs
    assert status.state_bytes > 0


@pytest.mark.parametrize(
    "output", [deployment.OUTPUT_COMMIT_FUNCTION, deployment.OUTPUT_RECONCILE_FUNCTION]
)
def test_the_deployed_functions_run(local: LocalAws, output: str) -> None:
    functions = boto3.session.Session().client(
        "lambda",
        endpoint_url=local.endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )

    answer = functions.invoke(
        FunctionName=local.outputs[output], Payload=json.dumps({"Records": []})
    )

    # What they make of it is theirs; here it counts that they can be imported and called.
    said = answer["Payload"].read().decode()
    assert "Runtime.ImportModuleError" not in said
    assert "No module named" not in said


def test_what_is_not_up_has_no_environment_and_says_how_to_get_one(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="coldstream local up"):
        environment.environment(pytestconfig.rootpath, state_dir=tmp_path / "none")
    status = environment.status(pytestconfig.rootpath, state_dir=tmp_path / "none")
    assert not status.running


def test_down_keeps_what_is_stored_and_wipe_does_not(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    root, state_dir = pytestconfig.rootpath, tmp_path / "state"
    first = environment.up(root, port=0, state_dir=state_dir, progress=silent)

    assert environment.down(root, state_dir=state_dir, progress=silent)
    second = environment.up(root, state_dir=state_dir, progress=silent)
    assert (second.outputs, second.started) == (first.outputs, True)
    assert second.change == "unchanged"

    assert environment.down(root, state_dir=state_dir, wipe=True, progress=silent)
    assert not state_dir.exists()
    assert not environment.down(root, state_dir=state_dir, progress=silent)


def test_another_port_than_the_one_it_is_up_on_is_refused_and_not_ignored(
    pytestconfig: pytest.Config, local: LocalAws, state_dir: Path
) -> None:
    root = pytestconfig.rootpath

    with pytest.raises(InvalidInputError, match=f"up on port {local.server.port} already"):
        environment.up(root, port=local.server.port - 1, state_dir=state_dir, progress=silent)
