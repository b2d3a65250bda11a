"""A pytest fixture: the embedded AWS for the tests of one process, and its clients.

In the topmost conftest.py, once: pytest makes a fixture, hence a server, for each conftest that
imports it.

    from coldstream_devkit.emulator import emulator

    __all__ = ["emulator"]

Every pytest-xdist worker is a process of its own, so it gets a server of its own, on a free port
and with an empty state directory. The fixture stops the server; if the process is killed, the
server notices and ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coldstream_devkit.local import process
from coldstream_devkit.local.deploy import client
from coldstream_devkit.local.environment import LocalAws, deploy_app
from coldstream_devkit.local.process import Server
from coldstream_devkit.local.progress import silent

_client = cache(client)
# It ends with its tests: saving its state every few seconds took a tenth of their time.
_NEVER = 1e6


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running embedded AWS.

    Attributes:
        server: its process.
        root: the project whose app it can deploy.
    """

    server: Server
    root: Path

    @property
    def endpoint(self) -> str:
        """URL of all services."""
        return self.server.endpoint

    def client(self, service: str) -> Any:
        """A boto3 client of a service; it reads nothing from the environment."""
        return _client(self.server, service)

    def environment(self) -> dict[str, str]:
        """The variables that point any AWS SDK at it."""
        return self.server.client_environment()

    def deploy_app(self, context: Mapping[str, str] | None = None) -> LocalAws:
        """Deploy the CDK app of the project; a second call finds it deployed.

        Args:
            context: settings of the app that replace those of cdk.json.
        """
        deployment = deploy_app(self.server, self.root, context=context, progress=silent)
        return LocalAws(self.server, deployment.outputs, started=False, change=deployment.change)


@contextmanager
def serving(root: Path, state_dir: Path, *, skip: str | None = None) -> Iterator[Emulator]:
    """A server of its own, for tests that cannot share one.

    Args:
        root: the project.
        state_dir: where it keeps everything; empty.
        skip: corrections that it goes without, as in `process.start`.
    """
    server = process.start(
        root,
        state_dir,
        skip=skip,
        snapshot_seconds=_NEVER,
        exit_with_parent=True,
        progress=silent,
    )
    try:
        yield Emulator(server, root)
    finally:
        process.stop(state_dir)


@pytest.fixture(scope="session")
def emulator(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emulator]:
    """The embedded AWS, empty, on a free port; stopped at the end of the session."""
    with serving(pytestconfig.rootpath, tmp_path_factory.mktemp("emulator")) as made:
        yield made
