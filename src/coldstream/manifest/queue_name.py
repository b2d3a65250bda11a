"""The name by which people know a stream; its directory is what everything else goes by."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What a broker replaces by "_" in the name of a stream's directory.
_ODD = re.compile("[^A-Za-z0-9_=-]")


@dataclass(frozen=True, slots=True)
class QueueName:
    """Which queue a directory belongs to. "" where nobody has said so."""

    cluster: str = ""
    vhost: str = ""
    queue: str = ""

    def fits(self, stream: str) -> bool:
        """Whether a broker can have given a queue of this name the directory `stream`.

        It writes VHOST_QUEUE_NANOSECONDS, with `_` for what it does not take: for each byte, code
        point or grapheme, as its release has it. So many names fit one directory.
        """
        made, _, nanoseconds = stream.rpartition("_")
        return nanoseconds.isdigit() and re.fullmatch(self.made_pattern, made) is not None

    @property
    def made_pattern(self) -> str:
        """What a broker may have made of the name: a regular expression, literal for ASCII."""
        return "".join(
            each if not _ODD.match(each) else "_" if each.isascii() else "_{0,4}"
            for each in f"{self.vhost}_{self.queue}"
        )

    def filled(self, other: QueueName) -> QueueName:
        """This name, with those parts of another one that this has not."""
        return QueueName(
            self.cluster or other.cluster, self.vhost or other.vhost, self.queue or other.queue
        )
