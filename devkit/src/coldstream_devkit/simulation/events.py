"""S3's events on their way to the commit function: lost, late, doubled, in batches, given again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from coldstream.usecases.handle_events import handle_messages

if TYPE_CHECKING:
    from coldstream_devkit.simulation.scene import Scene

_DELAYS_MS = (5, 400, 3000, 40_000)
#: A message that was taken and not settled comes again after this long; more than the time-out.
VISIBILITY_MS = 60_000
_MAX_RECEIVES = 2


@dataclass(slots=True)
class _Message:
    id: str
    body: str
    due: int
    receives: int = 0


@dataclass(slots=True)
class Queue:
    """SQS and the mapping that calls the commit function with a batch, and heeds its answer.

    Attributes:
        scene: whose.
        percent: of all messages, how many are lost, late or doubled.
        most: messages in a batch.
    """

    scene: Scene
    percent: float = 0
    most: int = 10
    _messages: list[_Message] = field(default_factory=list)
    _count: int = 0

    def object_created(self, key: str) -> None:
        """S3 tells of a new object."""
        self.post(json.dumps({"Records": [{"s3": {"object": {"key": key}}}]}))

    def ask(self, stream: str) -> None:
        """An agent asks for a look at a stream."""
        self.post(json.dumps({"stream": stream}))

    def post(self, body: str) -> None:
        """A message: it may be lost, late or doubled."""
        scene = self.scene
        now, choices = scene.scheduler.now, scene.choices
        if self.percent and choices.chance(self.percent):
            fate = choices.below(3)
            if fate == 0:
                scene.buckets["event lost"] += 1
                return
            if fate == 1:
                scene.buckets["event doubled"] += 1
                self._add(body, now + choices.one_of(_DELAYS_MS) * 10)
            self._add(body, now + choices.one_of(_DELAYS_MS))
            return
        self._add(body, now + 5)

    def _add(self, body: str, due: int) -> None:
        self._count += 1
        self._messages.append(_Message(f"m{self._count}", body, due))

    @property
    def waiting(self) -> bool:
        """Whether any message is on its way."""
        return bool(self._messages)

    def deliver(self) -> None:
        """Call the function with what is due: a batching window makes one call of many events."""
        now = self.scene.scheduler.now
        due = [each for each in self._messages if each.due <= now]
        while due:
            batch, due = due[: self.most], due[self.most :]
            for each in batch:
                each.due = now + VISIBILITY_MS
                each.receives += 1
            self.scene.spawn("commit", partial(self._handle, batch))

    def _handle(self, batch: list[_Message]) -> None:
        scene = self.scene
        report = handle_messages(
            scene.context(),
            [(each.id, each.body) for each in batch],
            pause=scene.pause,
            time_left=scene.time_left(),
            requests=self,
        )
        if report.failed:
            scene.buckets["batch failed in part"] += 1
        done = {each.id for each in batch if each.id not in report.failed}
        for each in batch:
            if each.id not in done and each.receives >= _MAX_RECEIVES:
                scene.buckets["dead letter"] += 1
                done.add(each.id)
        self._messages = [each for each in self._messages if each.id not in done]
