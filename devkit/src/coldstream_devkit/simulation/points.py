"""How a task is stopped at its calls, and executed again up to any of them.

A task cannot be copied in the middle of a call. But it is deterministic and shares nothing but the
ports, so where it is, is told by the answers that it has had (a `Point`); with these it is executed
again from its beginning, as often as somebody wants to know what it does with another answer.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from greenlet import getcurrent, greenlet

from coldstream.adapters.memory import MemoryCatalog, MemoryObjectStore
from coldstream.errors import ColdstreamError
from coldstream.manifest.catalog import CatalogItem
from coldstream.remote.context import Context
from coldstream_devkit.simulation.footprints import Call
from coldstream_devkit.simulation.inline import Inline
from coldstream_devkit.simulation.scheduler import Crash


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and a table.

    Attributes:
        store: the bucket.
        catalog: the table.
        clock_ms: S3's, ms since the Unix epoch; a copy has the same.
    """

    store: MemoryObjectStore
    catalog: MemoryCatalog
    clock_ms: Callable[[], int] = lambda: 0

    def copy(self) -> Place:
        """The same again, to be changed; objects and items themselves never change."""
        store = MemoryObjectStore(self.clock_ms)
        store.take_over(self.store)
        catalog = MemoryCatalog(self.catalog.table_id())
        catalog.items.update(self.catalog.items)
        return Place(store, catalog, self.clock_ms)


@dataclass(slots=True)
class Point:
    """How far a task has come."""

    task: int
    history: bytes  # a hash chain over the answers
    before: Point | None
    answer: object  # to the call of the point before
    call: Call | None = None  # None at its end
    result: object = None
    following: dict[bytes, Point] = field(default_factory=dict)

    def answers(self) -> list[object]:
        """All of them, from the beginning."""
        found: list[object] = []
        point = self
        while point.before is not None:
            found.append(point.answer)
            point = point.before
        return found[::-1]


class _Port:
    """A port of one task: every call stops the task until its answer is known."""

    def __init__(self, task: int, service: str) -> None:
        self._task, self._service = task, service

    def __getattr__(self, method: str) -> Any:
        task, service = self._task, self._service

        def call(*args: Any, **kwargs: Any) -> Any:
            parent = getcurrent().parent
            assert parent is not None
            answer = parent.switch(Call(task, service, method, args, kwargs))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


class Execution:
    """A task that is being executed: give it answers, and it gives calls.

    Args:
        number: of the task.
        act: what it does.
        prefix: of all keys.
    """

    def __init__(self, number: int, act: Callable[[Context], object], prefix: str) -> None:
        # Ids are the task's own, so that they do not depend on who came first.
        self._uids = (number + 1) * 1_000_000
        context = Context(
            _Port(number, "store"),
            _Port(number, "catalog"),
            prefix,
            self._new_uid,
            pool=Inline,
        )
        self.result: object = None
        self._failed: BaseException | None = None
        self._begun = False
        self._fiber = greenlet(lambda: self._go(act, context))

    def _new_uid(self) -> int:
        self._uids += 1
        return self._uids

    def _go(self, act: Callable[[Context], object], context: Context) -> None:
        try:
            self.result = act(context)
        except ColdstreamError as exc:
            self.result = exc
        except Crash:
            return
        except BaseException as exc:  # noqa: BLE001 - it is raised where it is looked at
            self._failed = exc

    def go_on(self, answer: object = None) -> Call | None:
        """What the task asks next, None if it has ended; the first answer begins it."""
        self._fiber.parent = getcurrent()
        call: Call | None
        if self._begun:
            call = self._fiber.switch(_fresh(answer))
        else:
            self._begun = True
            call = self._fiber.switch()
        if self._failed is not None:
            raise self._failed
        return call

    def close(self) -> None:
        """Leave it where it is."""
        if self._fiber:
            self._fiber.parent = getcurrent()
            self._fiber.throw(Crash)


def digest(data: bytes) -> bytes:
    """16 bytes that tell data apart."""
    return blake2b(data, digest_size=16).digest()


def _fresh(answer: object) -> object:
    """The same answer for another execution: a task may change a list, and located errors are."""
    return copy(answer) if isinstance(answer, (list, ColdstreamError)) else answer


def token(answer: object) -> bytes:
    """Bytes that tell answers apart."""
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return digest(bytes(answer))
    if isinstance(answer, ColdstreamError):
        return f"{type(answer).__name__} {answer}".encode()
    return repr(answer).encode()


def in_words(
    answer: object, before: CatalogItem | None, after: CatalogItem | None, lost: bool
) -> str:
    """What a call has led to, for a trace."""
    words = ""
    if isinstance(answer, ColdstreamError):
        words = f" -> {type(answer).__name__}"
    elif after is not before and after is not None:
        words = (
            f" -> version {after.version}, epoch {after.epoch},"
            f" [{after.first_offset}, {after.next_offset}), {after.state}"
        )
    elif type(answer).__name__ in ("NotLanded", "Unknown"):
        words = f" -> {type(answer).__name__}"
    return words + (", and the answer is lost" if lost else "")
