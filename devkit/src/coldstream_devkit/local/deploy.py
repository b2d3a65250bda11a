"""Bring a synthesised stack to the embedded AWS through the CloudFormation API.

It does what `cdk deploy` does with the same cloud assembly: uploads the assets to the bootstrap
bucket and hands the template to CloudFormation. It leaves out the CDK's own CLI, which takes half a
minute for bootstrap and deployment where this takes two seconds.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from botocore.config import Config
from botocore.exceptions import ClientError

from coldstream.adapters.sessions import new_session
from coldstream.errors import ConflictError, NotFoundError
from coldstream_devkit.local.process import (
    ACCESS_KEY,
    ACCOUNT,
    REGION,
    SECRET_KEY,
    EmbeddedAwsError,
    Server,
)
from coldstream_devkit.local.progress import Progress, to_stderr

_BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
_BOOTSTRAP_VERSION = "30"
_CAPABILITIES: Any = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
# A stack that was never there once, or whose creation failed: it cannot be updated, only replaced.
_DEAD_ENDS = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"})
_GOOD_ENDS = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE"})
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Deployment:
    """What came of a deployment.

    Attributes:
        stack: its name.
        change: whether the stack was created, updated, or as wanted already.
        outputs: the stack's outputs by key.
        uploaded_bytes: size of the assets that were not there yet.
        seconds: it took.
    """

    stack: str
    change: Literal["created", "updated", "unchanged"]
    outputs: dict[str, str]
    uploaded_bytes: int
    seconds: float


def client(server: Server, service: str) -> Any:
    """A boto3 client of a service, whatever the environment says about AWS."""
    session: Any = new_session()  # its types know literal names only
    return session.client(
        service,
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "max_attempts": 3},
            connect_timeout=5,
            read_timeout=60,
            max_pool_connections=32,
            proxies={},
        ),
    )


def deploy(
    server: Server,
    assembly: Path,
    stack: str,
    *,
    timeout_seconds: float = 120.0,
    progress: Progress = to_stderr,
) -> Deployment:
    """Create or update a stack and wait until it is there.

    Args:
        server: where to.
        assembly: the cloud assembly: the directory that the CDK app wrote.
        stack: name of the stack in it.
        timeout_seconds: to wait for CloudFormation; a custom resource could keep it for an hour.
        progress: told what happens.

    Raises:
        NotFoundError: there is no such stack in the assembly.
        ConflictError: another deployment of the stack is under way, or died with its server.
        EmbeddedAwsError: CloudFormation failed or took too long; the message has its reasons.
    """
    started = time.monotonic()
    manifest = assembly / f"{stack}.assets.json"
    if not manifest.is_file():
        raise NotFoundError("no such stack in this cloud assembly", key=str(manifest))
    _bootstrap(server)
    template_url, uploaded = _publish(server, assembly, manifest)
    cloudformation = client(server, "cloudformation")
    change = _apply(cloudformation, stack, template_url, timeout_seconds, progress)
    found = _describe(cloudformation, stack) or {}
    outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}
    seconds = time.monotonic() - started
    progress(f"stack {stack}: {change} in {seconds:.1f} s")
    return Deployment(stack, change, outputs, uploaded, seconds)


def _bootstrap(server: Server) -> None:
    """The one thing that `cdk bootstrap` leaves behind and that templates look at."""
    parameters = client(server, "ssm")
    try:
        parameters.get_parameter(Name=_BOOTSTRAP_PARAMETER)
    except parameters.exceptions.ParameterNotFound:
        parameters.put_parameter(
            Name=_BOOTSTRAP_PARAMETER, Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
        )


def _publish(server: Server, assembly: Path, manifest: Path) -> tuple[str, int]:
    """Upload the assets that are not there yet: (URL of the template, bytes uploaded)."""
    store = client(server, "s3")
    template = f"{manifest.name.removesuffix('.assets.json')}.template.json"
    template_url, uploaded = "", 0
    for asset in json.loads(manifest.read_text(encoding="utf-8"))["files"].values():
        path = assembly / asset["source"]["path"]
        for destination in asset["destinations"].values():
            bucket = _resolved(destination["bucketName"])
            key = _resolved(destination["objectKey"])
            if path.name == template:
                template_url = f"https://s3.{REGION}.amazonaws.com/{bucket}/{key}"
            if _exists(partial(store.head_object, Bucket=bucket, Key=key)):
                continue  # the key is a hash of the content
            if not _exists(partial(store.head_bucket, Bucket=bucket)):
                store.create_bucket(Bucket=bucket)
            zipped = asset["source"].get("packaging") == "zip" and path.is_dir()
            body = zip_directory(path) if zipped else path.read_bytes()
            store.put_object(Bucket=bucket, Key=key, Body=body)
            uploaded += len(body)
    if not template_url:
        raise NotFoundError("the cloud assembly does not publish its template", key=template)
    return template_url, uploaded


def _resolved(name: str) -> str:
    for placeholder, value in (
        ("${AWS::AccountId}", ACCOUNT),
        ("${AWS::Region}", REGION),
        ("${AWS::Partition}", "aws"),
    ):
        name = name.replace(placeholder, value)
    return name


def _exists(head: Callable[[], object]) -> bool:
    try:
        head()
    except ClientError as exc:
        if exc.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return False
        raise
    return True


def zip_directory(directory: Path) -> bytes:
    """A zip of all files below a directory; equal content gives equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, path in sorted(_files(directory)):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for path in directory.rglob("*"):
        if path.is_file():
            yield path.relative_to(directory).as_posix(), path


def _apply(
    cloudformation: Any, stack: str, template_url: str, seconds: float, progress: Progress
) -> Literal["created", "updated", "unchanged"]:
    deadline = time.monotonic() + seconds
    found = _describe(cloudformation, stack)
    if found is not None and found["StackStatus"].endswith("_IN_PROGRESS"):
        raise ConflictError(
            f"stack {stack} is {found['StackStatus']}: another deployment is under way, or its"
            " server was killed during one; then wipe the state and start again"
        )
    if found is not None and found["StackStatus"] in _DEAD_ENDS:
        progress(f"stack {stack}: removing what an earlier failure left")
        cloudformation.delete_stack(StackName=stack)
        _wait(cloudformation, stack, deadline)
        found = None
    arguments: dict[str, Any] = {
        "StackName": stack,
        "TemplateURL": template_url,
        "Capabilities": _CAPABILITIES,
    }
    if found is None:
        progress(f"stack {stack}: creating")
        cloudformation.create_stack(**arguments)
    else:
        progress(f"stack {stack}: comparing")
        # As the CDK's command line does: a parameter keeps its value, whatever the template's
        # default is now. The app's own rule about its prefix stands on that.
        formal = cloudformation.get_template_summary(TemplateURL=template_url).get("Parameters", [])
        known = {each["ParameterKey"] for each in found.get("Parameters", [])}
        arguments["Parameters"] = [
            {"ParameterKey": each["ParameterKey"], "UsePreviousValue": True}
            for each in formal
            if each["ParameterKey"] in known
        ]
        try:
            cloudformation.update_stack(**arguments)
        except ClientError as exc:
            # CloudFormation has no code of its own for this.
            if "No updates are to be performed" in exc.response["Error"]["Message"]:
                return "unchanged"
            raise
    status = _wait(cloudformation, stack, deadline)
    if status not in _GOOD_ENDS:
        raise EmbeddedAwsError(
            f"stack {stack} ended as {status}:\n{_failures(cloudformation, stack)}"
        )
    return "created" if found is None else "updated"


def _describe(cloudformation: Any, stack: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as exc:
        if exc.response["Error"]["Code"] == "ValidationError":
            return None  # "Stack with id ... does not exist"
        raise
    return None if found["StackStatus"] == "DELETE_COMPLETE" else found


def _wait(cloudformation: Any, stack: str, deadline: float) -> str:
    """The status in which a stack comes to rest."""
    while True:
        found = _describe(cloudformation, stack)
        status = "DELETE_COMPLETE" if found is None else str(found["StackStatus"])
        if not status.endswith("_IN_PROGRESS"):
            return status
        if time.monotonic() > deadline:
            raise EmbeddedAwsError(
                f"stack {stack} is still {status}:\n{_failures(cloudformation, stack)}"
            )
        time.sleep(_POLL_SECONDS)


def _failures(cloudformation: Any, stack: str) -> str:
    """The events that say why: failed resources, or else those not ready yet."""
    events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    latest: dict[str, dict[str, Any]] = {}
    for event in events:  # the newest first
        latest.setdefault(event["LogicalResourceId"], event)
    failed = [event for event in events if "FAILED" in event["ResourceStatus"]]
    unfinished = [one for one in latest.values() if "IN_PROGRESS" in one["ResourceStatus"]]
    lines = [
        f"  {event['ResourceStatus']} {event.get('ResourceType', '')} {event['LogicalResourceId']}:"
        f" {event.get('ResourceStatusReason', 'no reason given')}"
        for event in reversed(failed or unfinished)
    ]
    return "\n".join(lines) or "  CloudFormation gives no reason; see the server's log"
