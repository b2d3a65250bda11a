"""A stream of which somebody asks that messages be erased."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coldstream.adapters.memory import MemoryObjectStore
from coldstream.osiris.offsets import OffsetSet
from coldstream.plans.policy import PolicySet
from coldstream.reader import First, StreamReader
from coldstream.remote.context import Context
from coldstream.usecases.commit_runs import commit_runs
from coldstream.usecases.erase import ErasureReport, erase
from coldstream.usecases.purge import Progress, Purge, PurgeState, purge
from tests.support.crashes import OverWire, Wire
from tests.support.remote import PREFIX, STREAM, Remote, chain, no_pause

HOLD_MS = 1_000
SECRET = b"alice@example.org"
HOUR_MS = 3_600_000


def body(offset: int) -> bytes:
    """A body that tells its offset, with a secret at every fifth."""
    said = SECRET if offset % 5 == 0 else b"nobody in particular"
    return b"%06d " % offset + said


def off(*ranges: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(ranges)


class ErasingSite(Remote):
    """A stream of `count` fragments of ten offsets, in a bucket with versions and a clock."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.now_ms = HOUR_MS
        self.memory = MemoryObjectStore(lambda: self.now_ms, versioned=True)
        self.store.target = self.memory
        self.context = self.new_context()
        self.claimed()
        self.upload(*chain(count, body=body, records_per_chunk=5))
        commit_runs(self.context, STREAM, pause=no_pause)
        self.now_ms += HOUR_MS

    def erase(self, *ranges: tuple[int, int], **settings: Any) -> ErasureReport:
        return erase(
            self._over(settings.pop("wire", None)),
            STREAM,
            off(*ranges),
            settings.pop("policies", PolicySet(())),
            **{
                "reason": "ticket 1",
                "now_ms": self.now_ms,
                "branching": 1024,
                "pause": no_pause,
                **settings,
            },
        )

    def purge(self, **settings: Any) -> list[Purge]:
        """The steps of the machine, to its end."""
        done: list[Purge] = []
        progress = Progress()
        while True:
            step = purge(
                settings.get("context")
                or replace(self._over(settings.get("wire")), hold_ms=HOLD_MS),
                self._on(self.memory, settings.get("wire")),
                STREAM,
                settings.get("policies", PolicySet(())),
                progress=progress,
                pause=no_pause,
                time_left=settings.get("time_left", lambda: True),
            )
            done.append(step)
            if step.state is PurgeState.DONE:
                return done
            progress = step.progress
            self.now_ms += settings.get("settle_ms", 2 * HOLD_MS)

    def _over(self, wire: Wire | None) -> Context:
        """What a process sees whose calls may be its last."""
        context = self.new_context()
        if wire is None:
            return context
        store, catalog = self._on(self.memory, wire), self._on(self.items, wire)
        return replace(context, store=store, catalog=catalog)

    def _on(self, target: Any, wire: Wire | None) -> Any:
        return target if wire is None else OverWire(target, wire)

    def messages(self) -> list[bytes]:
        reader = StreamReader(self.memory, self.items, PREFIX, STREAM)
        return [bytes(each.body) for each in reader.messages(First())]

    def holds(self, secret: bytes) -> list[str]:
        """Keys of all objects and versions with these bytes."""
        found = (*self.memory.objects.items(), *self.memory.deleted.items())
        return [key for key, data in found if secret in data]
