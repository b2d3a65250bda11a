"""The deployed app on the embedded AWS, and the command line as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coldstream import deployment, names
from coldstream.adapters.dynamodb import DynamoCatalog
from coldstream.adapters.s3_boto import BotoObjectStore
from coldstream.adapters.s3_delete import S3Deleter
from coldstream.remote.context import Context
from coldstream.remote.roots import load
from coldstream.usecases.collect import collect
from coldstream_devkit.bucket import listed, referenced
from coldstream_devkit.emulator import Emulator
from coldstream_devkit.steps import publish_before_delete

COLDSTREAM = Path(sys.executable).with_name("coldstream")


@dataclass(frozen=True)
class Site:
    """The deployed app."""

    emulator: Emulator
    outputs: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it; nothing of ours leaks in."""
        kept = {
            name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ
        }
        return {
            **kept,
            **self.emulator.environment(),
            deployment.ENV_BUCKET: self.outputs[deployment.OUTPUT_BUCKET],
            deployment.ENV_TABLE: self.outputs[deployment.OUTPUT_TABLE],
            deployment.ENV_PREFIX: self.outputs[deployment.OUTPUT_PREFIX],
            deployment.ENV_CLAIM_FUNCTION: self.outputs[deployment.OUTPUT_CLAIM_FUNCTION],
            deployment.ENV_QUEUE_URL: self.outputs[deployment.OUTPUT_QUEUE_URL],
            deployment.ENV_WORKFLOWS: self.outputs[deployment.OUTPUT_WORKFLOWS],
            "NO_COLOR": "1",
        }

    @property
    def bucket(self) -> str:
        return self.outputs[deployment.OUTPUT_BUCKET]

    @property
    def catalog(self) -> DynamoCatalog:
        """The catalog, for looks that are many: a command takes a second of a core."""
        return DynamoCatalog(
            client=self.emulator.client("dynamodb"),
            table=self.outputs[deployment.OUTPUT_TABLE],
            prefix=self.outputs[deployment.OUTPUT_PREFIX],
        )

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Begin a command of the command line."""
        return subprocess.Popen(
            [COLDSTREAM, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Run a command of the command line to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *arguments: str | Path) -> Any:
        """Run a command that must succeed, and read its JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def tier(self, data_dir: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
        """Run the agent once over `data_dir`."""
        return self.run(
            "agent", "run", "--data-dir", data_dir, "--committed", "all", "--once", "--json", *more
        )


@pytest.fixture(scope="session")
def site(emulator: Emulator) -> Site:
    deployed = emulator.deploy_app()
    return Site(emulator, deployed.outputs)


@pytest.fixture(autouse=True)
def bucket_is_as_the_trees_say(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test: what the manifests refer to is there, and nothing else but known garbage.

    Nothing that the tests do is older than the grace time, so whatever `collect` would delete one
    day may still lie around; what it would never delete may not.
    """
    yield
    if "site" not in request.fixturenames:
        return
    site: Site = request.getfixturevalue("site")
    context = Context(
        store=BotoObjectStore(client=site.emulator.client("s3"), bucket=site.bucket),
        catalog=site.catalog,
        prefix=site.outputs[deployment.OUTPUT_PREFIX],
        new_uid=lambda: 1,
    )
    for item in context.catalog.streams():
        loaded = load(context, item.stream)
        fetch = context.fetch(item.stream)
        there = {
            row.key
            for row in listed(context.store, names.stream_prefix(context.prefix, item.stream))
        }
        wanted = referenced(context.prefix, loaded.item, loaded.root, fetch)
        assert not publish_before_delete(wanted, there)
        found = collect(
            context,
            S3Deleter(client=site.emulator.client("s3"), bucket=site.bucket),
            item.stream,
            grace_ms=86_400_000,
            run_ms=0,
            now_ms=time.time_ns() // 1_000_000,
            dry_run=True,
            held=lambda _: False,
        )
        assert not found.unique
        assert not found.foreign


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], Any]], Any]:
    """Wait up to five minutes until a condition gives something true; give that back."""

    def wait(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 300
        while not (found := condition()):
            assert time.monotonic() < deadline, "waited five minutes in vain"
            time.sleep(0.2)
        return found

    return wait
