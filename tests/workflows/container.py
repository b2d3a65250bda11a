"""The deployed functions in this process, against the embedded AWS, and killed between requests.

A real container dies when nobody expects it; here it dies at a request that the test chooses. What
makes the requests is the same: the handlers, the adapters and boto3, with the settings that the
function has in the stack.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from functions import _runtime, _starts, _steps
from tests.workflows.site import Site

_CACHES = (
    _runtime.remote,
    _steps.deleter,
    _steps.composer,
    _steps._policies,
    _starts._workflows,
)


#: Begins of the names of operations that change something.
_CHANGES = ("Put", "Update", "Delete", "BatchWrite", "TransactWrite", "Start")


class Killed(BaseException):
    """The container is gone. No error of ours: nothing may catch it and go on."""


@dataclass
class Context:
    """What Lambda gives a handler beside the event."""

    function_name: str
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:killed"
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


class Containers:
    """Runs handlers, each time as a new container that has cached nothing.

    Args:
        site: the deployed app.
        patch: undoes what is changed here: the environment, and how the functions make clients.

    Attributes:
        writes: of each request of the last call, whether it changes something.
    """

    def __init__(self, site: Site, patch: pytest.MonkeyPatch) -> None:
        self._site = site
        self._patch = patch
        self._lock = threading.Lock()
        self._left: int | None = None
        self.writes: list[bool] = []
        self._clients: dict[str, Any] = {}
        self._environments: dict[str, dict[str, str]] = {}
        for name, value in site.emulator.environment().items():
            patch.setenv(name, value)
        session: Any = boto3.session.Session()
        session.events.register("before-send", self._count)

        def client(service: str, **more: Any) -> Any:
            if service not in self._clients:
                self._clients[service] = session.client(service, **more)
            return self._clients[service]

        patch.setattr(_runtime, "_session", lambda: SimpleNamespace(client=client))

    def invoke(
        self,
        step: str,
        event: Mapping[str, Any],
        *,
        requests: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call a handler.

        Args:
            step: name of its module.
            event: its input.
            requests: how many go out before the container is killed; None for all.
            settings: variables that replace those of the deployed function.

        Raises:
            Killed: instead of the next request.
        """
        for name, value in {**self._environment(step), **(settings or {})}.items():
            self._patch.setenv(name, value)
        self.forget()
        self._left, self.writes = requests, []
        try:
            handler = importlib.import_module(f"functions.{step}").handler
            answer: dict[str, Any] = handler(dict(event), Context(step))
        finally:
            self._left = None
        return answer

    def forget(self) -> None:
        """Nothing is known any more: what comes is a new container."""
        for cache in _CACHES:
            cache.cache_clear()

    def _environment(self, step: str) -> dict[str, str]:
        if step not in self._environments:
            found = self._site.emulator.client("lambda").get_function_configuration(
                FunctionName=self._site.function(step)
            )
            self._environments[step] = found["Environment"]["Variables"]
        return self._environments[step]

    def _count(self, request: Any, **_: Any) -> None:
        with self._lock:
            self.writes.append(_changes(request))
            if self._left is None:
                return
            if self._left == 0:
                raise Killed  # and so does every request of its other threads
            self._left -= 1


def _changes(request: Any) -> bool:
    """Whether a request of boto3 changes something: by its operation, or else by its method."""
    operation = request.headers.get("X-Amz-Target", b"").decode().rpartition(".")[2]
    if operation:
        return operation.startswith(_CHANGES)
    return request.method not in ("GET", "HEAD")
