"""The function `claim` as agents meet it: requests are refused, lost, late, doubled, or cut short.

The agent has a view of the bucket and of the table that lets it add fragments, and nothing else: an
agent that writes what only the function may write ends the history.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast

from coldstream.errors import UnavailableError
from coldstream.ports import Catalog, ObjectStore
from coldstream.usecases.claim_function import answer
from coldstream_devkit.simulation.net import LAMBDA, LostError
from coldstream_devkit.simulation.services import SimCatalog, SimStore

if TYPE_CHECKING:
    from coldstream_devkit.simulation.scene import Scene


#: An agent asks a few times in a history, and does a hundred other things.
_TIMES = 5


class AskedFunction:
    """`ClaimFunction` on a Lambda of the simulator; it goes on when the agent that asked is dead.

    Args:
        scene: whose Lambda it is.
        timeout_ms: when it is ended.
    """

    def __init__(self, scene: Scene, timeout_ms: int) -> None:
        self._scene = scene
        self._timeout_ms = timeout_ms
        self._running: Counter[str] = Counter()  # invocations under way, by stream

    def invoke(self, request: bytes) -> bytes:
        """As the port says."""
        if self._scene.scheduler.task is None:
            return self._answer(request)  # nothing interferes
        buckets, begun, given_up = self._scene.buckets, 0, False

        def run() -> bytes:
            nonlocal begun
            begun += 1
            buckets["claim invoked twice"] += begun > 1
            buckets["claim invoked late"] += given_up
            return self._run(request)

        try:
            return self._scene.net.write(LAMBDA, "invoke claim", run, times=_TIMES)
        except LostError:
            buckets["claim without an answer"] += begun > 0
            buckets["claim lost"] += begun == 0
            given_up = True
            raise UnavailableError("invoke claim: no answer") from None

    def _run(self, request: bytes) -> bytes:
        scheduler = self._scene.scheduler
        caller, answers = scheduler.task, []
        stream = str(json.loads(request)["stream"])

        def act() -> None:
            self._scene.buckets["claims at the same time"] += self._running[stream] > 0
            self._running[stream] += 1
            try:
                answers.append(self._answer(request))
            finally:
                self._running[stream] -= 1
            if caller is not None:
                scheduler.wake(caller)

        self._scene.spawn("asked", act)
        scheduler.sleep(self._timeout_ms + 1000)
        if not answers:
            raise UnavailableError("invoke claim: the function did not end")
        return answers[0]

    def _answer(self, request: bytes) -> bytes:
        scene = self._scene
        answered = answer(
            scene.context(),
            json.loads(request),
            pause=scene.pause,
            now_ms=scene.scheduler.now,
            time_left=scene.time_left(),
        )
        if "question" in answered.row:
            scene.buckets["log asked about"] += 1
        if answered.error is not None:
            scene.scheduler.say(f"{type(answered.error).__name__}: {answered.error}")
        return json.dumps(answered.row).encode()


def view_of_an_agent(store: SimStore, catalog: SimCatalog) -> tuple[ObjectStore, Catalog]:
    """What an agent may do with the bucket and the table."""
    looking = ("get", "get_all", "get_suffix", "list")
    return (
        cast("ObjectStore", _Restricted(store, looking, _check_fragment)),
        cast("Catalog", _Restricted(catalog, ("get", "table_id"))),
    )


def _check_fragment(key: str) -> None:
    if not key.endswith(".fragment"):
        raise AssertionError(f"an agent PUTs {key}")


class _Restricted:
    """A service of which only some methods may be called.

    Args:
        service: it.
        allowed: names of these methods.
        check_put: called with the key of each PUT; without it there is no PUT.
    """

    def __init__(
        self,
        service: object,
        allowed: Collection[str],
        check_put: Callable[[str], None] | None = None,
    ) -> None:
        self._service = service
        self._allowed = allowed
        self._check_put = check_put

    def __getattr__(self, name: str) -> Any:
        if name == "put" and self._check_put is not None:
            return self._put
        if name not in self._allowed:
            raise AssertionError(f"an agent calls {name}")
        return getattr(self._service, name)

    def _put(self, key: str, body: object, **named: object) -> None:
        assert self._check_put is not None
        self._check_put(key)
        self._service.put(key, body, **named)  # type: ignore[attr-defined]
