"""Which stream directories have changed since the last look: two `stat` calls a stream.

Where nothing has changed, nothing else is done for a stream. A broker has ten thousand of them, of
which most are idle at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.agent.disk.files import LogFiles, Stamp
from coldstream.agent.disk.log import StreamLog
from coldstream.osiris.segment import index_name

#: A stream that has not changed for so long is looked at in every n-th pass only.
_IDLE_SECONDS, _IDLE_PASSES = 60.0, 3
#: A directory without a segment is no member that is made anew just now, after so long.
_BARE_SECONDS = 60.0


@dataclass(slots=True)
class _Known:
    """One stream.

    Args:
        directory: of its files.

    Attributes:
        newest: file name of the newest index; "" if there is none.
        stamp: of the last look; None if it has to be looked at.
        moved_at: when it last changed, monotonic seconds.
    """

    directory: Path
    newest: str = ""
    stamp: Stamp | None = None
    moved_at: float = float("-inf")


@dataclass(slots=True)
class Changes:
    """What has changed below a data directory.

    Args:
        data_dir: holds one directory a stream.
        files: where the directories are.
    """

    data_dir: Path
    files: LogFiles
    _known: dict[str, _Known] = field(default_factory=dict)
    _passes: int = 0

    def look(self, streams: Iterable[str], now: float) -> Iterator[str]:
        """Those of the streams that have changed, or that cannot be looked at.

        Args:
            streams: directory names.
            now: monotonic seconds.
        """
        self._passes += 1
        for number, stream in enumerate(streams):
            known = self._known.get(stream)
            if known is None:
                known = self._known[stream] = _Known(self.data_dir / stream)
            idle = now - known.moved_at > _IDLE_SECONDS and known.stamp is not None
            if idle and (self._passes + number) % _IDLE_PASSES:
                continue
            if self._changed(known):
                known.moved_at = now
                yield stream

    def bare(self, now: float) -> set[str]:
        """Streams whose directory has had no segment for long: it may have stayed behind empty."""
        return {
            stream
            for stream, known in self._known.items()
            if not known.newest and known.stamp and now - known.moved_at > _BARE_SECONDS
        }

    def forget(self, stream: str) -> None:
        """A directory is gone."""
        self._known.pop(stream, None)

    def _changed(self, known: _Known) -> bool:
        directory = known.directory
        try:
            stamp = self.files.stamp(directory, known.newest)
            if stamp == known.stamp and not stamp.fresh:
                return False
            # First the stamp, then the names: what comes in between is seen by the next look.
            there = self.files.stamp(directory, "")
            segments = StreamLog(directory, self.files).segments()
            newest = index_name(segments[-1]) if segments else ""
            file = self.files.stamp(directory, newest).file
            before, name = known.stamp, known.newest
            known.newest, known.stamp = newest, Stamp(there.directory, file, there.fresh)
            if before is None or newest != name:
                return True
            return (before.directory, before.file) != (there.directory, file)
        except Exception:  # noqa: BLE001 - the look at the stream says it
            known.newest, known.stamp = "", None
            return True
