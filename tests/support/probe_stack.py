"""What the tests of the embedded AWS share: a small stack, and ways to look at it."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from coldstream_devkit.emulator import Emulator
from coldstream_devkit.local import process
from coldstream_devkit.local.deploy import Deployment, deploy
from coldstream_devkit.local.progress import silent

HERE = Path(__file__).parents[1] / "local"
STACK = "probe"
T = TypeVar("T")


@dataclass(frozen=True)
class Probe:
    """The small stack on a server.

    Attributes:
        emulator: the server.
        outputs: of the stack.
        corrected: whether the server has our corrections.
    """

    emulator: Emulator
    outputs: dict[str, str]
    corrected: bool = True

    def client(self, service: str) -> Any:
        return self.emulator.client(service)

    def invoke(self, function: str = "Function", **event: Any) -> tuple[str | None, Any]:
        """Call a function: (kind of error, answer)."""
        answer = self.client("lambda").invoke(
            FunctionName=self.outputs[function], Payload=json.dumps(event)
        )
        return answer.get("FunctionError"), json.loads(answer["Payload"].read() or b"null")

    def awaited(self, look: Callable[[], T], seconds: float) -> T:
        """`eventually`, which gives up after `seconds` where a correction may be missing.

        With it, what is looked for does come, however late on a busy machine.
        """
        return eventually(look, seconds=seconds) if not self.corrected else eventually(look)

    def batches(self, mark: str) -> list[list[str]]:
        """The batches that the queue's function got: the bodies that hold `mark`."""
        return self._recorded("batches/", mark)

    def records(self, mark: str) -> list[list[str]]:
        """The same for the function behind the table's stream: the names of the items."""
        return self._recorded("records/", mark)

    def _recorded(self, prefix: str, mark: str) -> list[list[str]]:
        store, bucket = self.client("s3"), self.outputs["Records"]
        found = []
        for one in store.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
            body = json.loads(store.get_object(Bucket=bucket, Key=one["Key"])["Body"].read())
            bodies = [text for text in body["bodies"] if mark in text]
            if bodies:  # S3's own test event may be in a batch, too
                found.append(bodies)
        return found


def eventually(look: Callable[[], T], *, seconds: float = 120.0) -> T:
    """What `look` gives as soon as it is true; what it gave last when the time is over.

    The time is for what never comes: it is short only where nothing is expected to come, for a
    machine under load may take long for anything.
    """
    deadline = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def write_assembly(
    directory: Path, template: dict[str, Any], stack: str = STACK, *, code: Path = HERE / "probe"
) -> Path:
    """A cloud assembly as the CDK writes it, with one code asset."""
    directory.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for path in sorted(code.rglob("*.py")):
        digest.update(path.read_bytes())
    asset = digest.hexdigest()
    shutil.copytree(
        code,
        directory / f"asset.{asset}",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    text = json.dumps(template).replace("@ASSET@", f"{asset}.zip")
    (directory / f"{stack}.template.json").write_text(text)
    bucket = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
    files = {
        asset: {
            "source": {"path": f"asset.{asset}", "packaging": "zip"},
            "destinations": {"here": {"bucketName": bucket, "objectKey": f"{asset}.zip"}},
        },
        "template": {
            "source": {"path": f"{stack}.template.json", "packaging": "file"},
            "destinations": {
                "here": {
                    "bucketName": bucket,
                    "objectKey": f"{hashlib.sha256(text.encode()).hexdigest()}.json",
                }
            },
        },
    }
    (directory / f"{stack}.assets.json").write_text(json.dumps({"files": files}))
    return directory


def probe_template() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "probe.template.json").read_text())
    return loaded


def deploy_probe(server: process.Server, directory: Path) -> Deployment:
    assembly = write_assembly(directory, probe_template())
    return deploy(server, assembly, STACK, timeout_seconds=30, progress=silent)
