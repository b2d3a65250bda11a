"""A cloud assembly is created, updated, left as it is, or fails with reasons."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from coldstream.errors import NotFoundError, UnavailableError
from coldstream_devkit.local import process
from coldstream_devkit.local.deploy import Deployment, client, deploy, zip_directory
from coldstream_devkit.local.process import Server
from coldstream_devkit.local.progress import silent
from tests.support.probe_stack import HERE, STACK, probe_template, write_assembly

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    state_dir = tmp_path_factory.mktemp("deploy")
    yield process.start(pytestconfig.rootpath, state_dir, exit_with_parent=True, progress=silent)
    process.stop(state_dir)


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    return write_assembly(tmp_path / "assembly", probe_template())


def bring(server: Server, assembly: Path, **options: Any) -> Deployment:
    return deploy(server, assembly, STACK, progress=silent, **options)


def invoke(server: Server, function: str, payload: bytes) -> bytes:
    answer = client(server, "lambda").invoke(FunctionName=function, Payload=payload)
    body: bytes = answer["Payload"].read()
    return body


def test_a_second_deployment_of_the_same_assembly_changes_nothing(
    server: Server, assembly: Path
) -> None:
    bring(server, assembly)

    again = bring(server, assembly)

    assert again.change == "unchanged"
    assert again.uploaded_bytes == 0
    assert again.outputs.keys() >= {"Function", "Queue", "Bucket"}


def test_new_code_is_what_runs_after_the_next_deployment(
    server: Server, assembly: Path, tmp_path: Path
) -> None:
    first = bring(server, assembly)
    assert invoke(server, first.outputs["Function"], b'{"do": "nothing"}') == b"{}"
    changed = tmp_path / "changed"
    shutil.copytree(HERE / "probe", changed)
    (changed / "probe.py").write_text("def handler(event, context):\n    return 'changed'\n")

    second = bring(server, write_assembly(tmp_path / "second", probe_template(), code=changed))

    assert (second.change, second.outputs) == ("updated", first.outputs)
    assert invoke(server, second.outputs["Function"], b"{}") == b'"changed"'


def test_a_stack_that_fails_says_which_resource_and_why_and_can_be_deployed_when_mended(
    server: Server, tmp_path: Path
) -> None:
    name = "mended"
    template: dict[str, Any] = {
        "Resources": {
            "Wrong": {
                "Type": "AWS::SQS::Queue",
                "Properties": {"VisibilityTimeout": 999999999},
            }
        }
    }
    wrong = _renamed(write_assembly(tmp_path / "wrong", template), name)

    with pytest.raises(UnavailableError, match=r"(?s)ROLLBACK_COMPLETE.*CREATE_FAILED.*Wrong: "):
        deploy(server, wrong, name, progress=silent)

    template["Resources"] = {"Queue": {"Type": "AWS::SQS::Queue"}}
    right = _renamed(write_assembly(tmp_path / "right", template), name)
    assert deploy(server, right, name, progress=silent).change == "created"


def test_a_stack_that_is_there_is_not_moved_to_another_prefix(
    server: Server, tmp_path: Path
) -> None:
    """The app's own parameter and rule; a deployment keeps the value that a parameter has."""
    from aws_cdk import App, Stack, assertions

    from infra.moves import refuse_moves

    def bring_for(prefix: str, seconds: int) -> Deployment:
        stack = Stack(App(), "Served")
        refuse_moves(stack, prefix)
        template: dict[str, Any] = dict(assertions.Template.from_stack(stack).to_json())
        template["Resources"] = {
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"VisibilityTimeout": seconds}}
        }
        template["Outputs"] = {"Queue": {"Value": {"Ref": "Queue"}}}
        directory = tmp_path / f"{prefix.strip('/')}-{seconds}"
        return deploy(
            server, _renamed(write_assembly(directory, template), "served"), "served",
            progress=silent,
        )  # fmt: skip

    first = bring_for("prod/", 30)
    with pytest.raises((ClientError, UnavailableError), match="serves another prefix than test/"):
        bring_for("test/", 60)

    attributes = client(server, "sqs").get_queue_attributes(
        QueueUrl=first.outputs["Queue"], AttributeNames=["VisibilityTimeout"]
    )
    assert attributes["Attributes"]["VisibilityTimeout"] == "30"
    assert bring_for("prod/", 90).change == "updated"


def test_a_deployment_that_does_not_end_is_given_up(server: Server, tmp_path: Path) -> None:
    name = "waiting"
    template = {
        "Resources": {
            "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
            "Wait": {
                "Type": "AWS::CloudFormation::WaitCondition",
                "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "3600"},
            },
        }
    }
    endless = _renamed(write_assembly(tmp_path / "endless", template), name)

    with pytest.raises(UnavailableError, match="is still CREATE_IN_PROGRESS"):
        deploy(server, endless, name, timeout_seconds=0.5, progress=silent)


def test_a_stack_that_the_assembly_lacks_is_not_found(server: Server, assembly: Path) -> None:
    with pytest.raises(NotFoundError, match="no such stack"):
        deploy(server, assembly, "absent", progress=silent)


def test_equal_directories_give_equal_zips_whenever_and_wherever_they_were_made(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        for file in ("b.py", "a.py", "sub/c.py") if name == "one" else ("sub/c.py", "a.py", "b.py"):
            (tmp_path / name / file).write_text(file)
    os.utime(tmp_path / "two" / "a.py", (0, 0))

    one, two = zip_directory(tmp_path / "one"), zip_directory(tmp_path / "two")

    assert one == two
    assert zipfile.ZipFile(BytesIO(one)).namelist() == ["a.py", "b.py", "sub/c.py"]


def _renamed(assembly: Path, name: str) -> Path:
    for kind in ("assets", "template"):
        path = assembly / f"{STACK}.{kind}.json"
        text = path.read_text().replace(f"{STACK}.template.json", f"{name}.template.json")
        (assembly / f"{name}.{kind}.json").write_text(text)
    return assembly
