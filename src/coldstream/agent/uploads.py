"""Uploads one slice, for as long as it takes: in a worker's thread.

A slice is retried for as long as the store does not answer, with a growing pause, and its buffer is
given back meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.agent.host import Flag
from coldstream.agent.upload import BufferPool, Job, Uploaded, fragment_size, upload
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


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads slices.

    Args:
        context: bucket, prefix, ids.
        buffers: of all uploads together.
        stop: ends what waits.
        jitter: a random number of seconds below the given one.
        once: give up after some tries.
    """

    context: Context
    buffers: BufferPool
    stop: Flag
    jitter: Callable[[float], float]
    once: bool

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
        attempt = 0
        while True:
            buffer = self.buffers.take(fragment_size(job.piece), stop=self.stop.is_set)
            if buffer is None:
                raise UnavailableError("the agent is stopping", stream=job.log.stream)
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
            except (UnavailableError, UnknownOutcomeError, AlreadyExistsError):
                # Whatever became of it: the next attempt has a uid of its own, and of two good
                # uploads of one range the manifest takes one.
                attempt += 1
                if self.stop.is_set() or (self.once and attempt >= _TRIES_ONCE):
                    raise
            finally:
                self.buffers.give_back(buffer)
            self.stop.wait(self.jitter(min(_LONGEST_PAUSE, 0.2 * 2 ** min(attempt, 10))))
