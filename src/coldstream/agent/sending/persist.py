"""Uploads one slice, for as long as it takes: in a worker's thread.

A slice is retried for as long as the store does not answer, with a growing pause, and its buffer is
given back meanwhile. `lanes` says when it may go: fewer at once on a slow link, one now and then
where the store refuses. A slice that is far larger than what the link takes is given back, to be
cut again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.agent.host import Flag
from coldstream.agent.sending.lanes import Lanes
from coldstream.agent.sending.slices import BufferPool, Job, Uploaded, fragment_size, upload
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    InternalError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.remote.context import Context

_LONGEST_PAUSE = 30.0
_TRIES_ONCE = 5
#: A slice that is too large for the link is given back after so many.
_TRIES_TOO_LARGE = 3


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads slices.

    Args:
        context: bucket, prefix, ids.
        buffers: of all uploads together.
        stop: ends what waits.
        jitter: a random number of seconds below the given one.
        once: give up after some tries.
        lanes: say when an upload may go.
    """

    context: Context
    buffers: BufferPool
    stop: Flag
    jitter: Callable[[float], float]
    once: bool
    lanes: Lanes

    def outcome(
        self, job: Job, died: Callable[[ColdstreamError], None]
    ) -> Uploaded | ColdstreamError:
        """Upload one slice; what became of it.

        Args:
            job: the slice.
            died: takes the outcome where the thread itself is about to end.
        """
        try:
            return self._stubbornly(job)
        except ColdstreamError as exc:
            return exc
        except OSError as exc:
            return UnavailableError(
                f"a file cannot be read: {exc}",
                stream=job.log.stream,
                offset=job.piece.first_offset,
            )
        except BaseException as exc:
            died(InternalError(f"an upload died: {exc!r}", stream=job.log.stream))
            raise

    def _stubbornly(self, job: Job) -> Uploaded:
        attempt, size = 0, fragment_size(job.piece)
        while True:
            try:
                return self._try(job, size)
            except (UnavailableError, UnknownOutcomeError, AlreadyExistsError) as exc:
                # Whatever became of it: the next attempt has a uid of its own, and of two good
                # uploads of one range the manifest takes one.
                attempt += 1
                if self.stop.is_set() or (self.once and attempt >= _TRIES_ONCE):
                    raise
                if attempt >= _TRIES_TOO_LARGE and self._can_be_less(job, size):
                    raise UnavailableError(
                        f"the link does not take {size} bytes at a time, so less is cut: {exc}",
                        stream=job.log.stream,
                        offset=job.piece.first_offset,
                    ) from exc
            self.stop.wait(self.jitter(min(_LONGEST_PAUSE, 0.2 * 2 ** min(attempt, 10))))

    def _can_be_less(self, job: Job, size: int) -> bool:
        return len(job.piece.records) > 1 and self.lanes.too_large(size)

    def _try(self, job: Job, size: int) -> Uploaded:
        buffer = self.buffers.take(size, stop=self.stop.is_set)
        if buffer is None:
            raise _stopping(job)
        try:
            lane = self.lanes.enter(self.stop.is_set)
            if lane is None:
                raise _stopping(job)
            error: BaseException | None = None
            try:
                return upload(
                    self.context.store,
                    job.log,
                    job.piece,
                    job.placement,
                    prefix=self.context.prefix,
                    uid=self.context.new_uid(),
                    buffer=buffer,
                )
            except BaseException as exc:
                error = exc
                raise
            finally:
                self.lanes.leave(lane, size=size, error=error)
        finally:
            self.buffers.give_back(buffer)


def _stopping(job: Job) -> UnavailableError:
    return UnavailableError("the agent is stopping", stream=job.log.stream)
