"""The app, synthesised as a stranger's machine would do it, once per session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: A customer's own, of the app with every setting changed.
KEY = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:iceberg-AbCdEf"

Resource = dict[str, Any]


class Assembly:
    """What a synthesis wrote: the template, and what cdk-nag said."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.template_path = next(directory.glob("*.template.json"))
        self.template: dict[str, Any] = json.loads(self.template_path.read_text())
        self.report: dict[str, Any] = json.loads((directory / "validation-report.json").read_text())
        self.resources: dict[str, Resource] = self.template["Resources"]

    def of_type(self, kind: str) -> dict[str, Resource]:
        """All resources of a CloudFormation type, by logical id."""
        return {name: one for name, one in self.resources.items() if one["Type"] == kind}

    def only(self, kind: str, part: str = "") -> Resource:
        """The single resource of a type whose logical id contains `part`."""
        found = [one for name, one in self.of_type(kind).items() if part in name]
        assert len(found) == 1, f"{len(found)} resources of type {kind} with {part!r}"
        return found[0]

    def rights(self, part: str) -> list[dict[str, Any]]:
        """The statements of the policy whose logical id contains `part`, flattened."""
        kinds = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        found = [
            one
            for name, one in self.resources.items()
            if one["Type"] in kinds and name.startswith(part)
        ]
        assert len(found) == 1
        return [normal(each) for each in found[0]["Properties"]["PolicyDocument"]["Statement"]]


def flat(value: Any) -> str:
    """A resource or other value as text: `Ref` and `GetAtt` as <Id> and <Id.Attribute>."""
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    if function == "Ref":
        return f"<{argument}>"
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    if function == "Fn::Sub":
        return str(argument)
    assert function == "Fn::Join"
    return str(argument[0]).join(map(flat, argument[1]))


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def normal(statement: dict[str, Any]) -> dict[str, Any]:
    """A statement with lists of plain text for actions and resources."""
    return {
        **statement,
        "Action": sorted(listed(statement["Action"])),
        "Resource": sorted(map(flat, listed(statement["Resource"]))),
    }


def run_app(
    *, outdir: Path, cwd: Path, context: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `app.py` with nothing around it: no AWS settings, no git, no proxy, no home.

    Of all programs only node is on the PATH.
    """
    node = shutil.which("node")
    assert node, "the CDK needs node"
    programs = cwd / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "node").unlink(missing_ok=True)
    (programs / "node").symlink_to(node)
    environment = {
        "PATH": str(programs),
        "HOME": os.environ.get("HOME", "/root") if context is None else str(cwd),
        "CDK_OUTDIR": str(outdir),
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        # Whom this machine trusts, where the first run has to fetch the bundle's packages.
        **{name: value for name, value in os.environ.items() if name.startswith("SSL_CERT_")},
    }
    if context is not None:
        # As the CDK's own command line hands over cdk.json and -c.
        environment["CDK_CONTEXT_JSON"] = json.dumps(context)
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with the settings of cdk.json."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = run_app(outdir=elsewhere / "out", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    return Assembly(elsewhere / "out")


@pytest.fixture(scope="session")
def customised(tmp_path_factory: pytest.TempPathFactory, assembly: Assembly) -> Assembly:
    """The app with every setting changed. The bundle is there already, so uv is not needed."""
    elsewhere = tmp_path_factory.mktemp("customised")
    context = {
        "coldstream:stack-name": "rabbit-eu",
        "coldstream:prefix": "prod/eu/",
        "coldstream:bucket-name": "what-was-left",
        "coldstream:table-name": "what-was-left",
        "coldstream:warehouse-name": "tables-that-were-left",
        "coldstream:encryption-key": KEY,
        "coldstream:protected": "false",
        "coldstream:alarm-email": "ops@example.com",
        "coldstream:agents-behind-minutes": "45",
        "coldstream:batch-window-seconds": "7",
        "coldstream:max-concurrency": "3",
        "coldstream:reserved-concurrency": "5",
        "coldstream:claim-concurrency": "4",
        "coldstream:commit-memory-mib": "1024",
        "coldstream:step-memory-mib": "1536",
        "coldstream:reconcile-interval-minutes": "1",
        "coldstream:reconcile-idle-interval-minutes": "90",
        "coldstream:retention-interval-minutes": "2",
        "coldstream:consolidate-interval-minutes": "3",
        "coldstream:collect-interval-minutes": "4",
        "coldstream:fragment-size-mib": "8",
        "coldstream:branching": "16",
        "coldstream:grace-seconds": "5",
        "coldstream:undelete-seconds": "6",
        "coldstream:deleted-kept-days": "30",
        "coldstream:archive-after-days": "45",
        "coldstream:tracing": "true",
        "coldstream:step-timeout-seconds": "120",
        "coldstream:testing": "true",
        "coldstream:log-retention-days": "90",
        "coldstream:database": "streams_eu",
        "coldstream:materialise-rules": "s3://somewhere/materialise/rules.json",
        "coldstream:materialise-interval-minutes": "15",
        "coldstream:table-maintenance": "glue",
        "coldstream:catalog-secret": SECRET,
        "coldstream:scrub-interval-minutes": "1440",
        "coldstream:profile-interval-minutes": "10080",
        "coldstream:fleet-interval-minutes": "720",
        "coldstream:job-workers": "4",
        "coldstream:agent-principals": "123456789012, arn:aws:iam::210987654321:role/broker",
    }
    done = run_app(outdir=elsewhere / "out", cwd=elsewhere, context=context)
    assert done.returncode == 0, done.stderr
    return Assembly(elsewhere / "out")


@pytest.fixture
def refuse(tmp_path: Path) -> Callable[[dict[str, Any]], str]:
    """Run the app with a context that it must refuse; gives what it says."""

    def run(context: dict[str, Any]) -> str:
        done = run_app(outdir=tmp_path / "out", cwd=tmp_path, context=context)
        assert done.returncode == 1
        return done.stderr

    return run
