"""The name by which people know a stream; its directory is what everything else goes by."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

#: What a broker replaces by "_" in the name of a stream's directory, or "_" itself.
_ODD = re.compile("[^A-Za-z0-9=-]+")


@dataclass(frozen=True, slots=True)
class QueueName:
    """Which queue a directory belongs to. "" where nobody has said so.

    Attributes:
        cluster: name of the cluster.
        vhost: virtual host.
        queue: the stream's name.
        super_stream: of which it is a partition; "" if of none, too.
        routing_key: by which the super stream's exchange finds the partition.
    """

    cluster: str = ""
    vhost: str = ""
    queue: str = ""
    super_stream: str = ""
    routing_key: str = ""

    def fits(self, stream: str) -> bool:
        """Whether a broker can have given a queue of this name the directory `stream`.

        It writes VHOST_QUEUE_NANOSECONDS, with `_` for what it does not take: for each byte, code
        point or grapheme, as its release has it. So many names fit one directory.
        """
        made, _, nanoseconds = stream.rpartition("_")
        return nanoseconds.isdigit() and any(re.fullmatch(each, made) for each in self.made)

    @property
    def kept(self) -> tuple[str, ...]:
        """What a broker may keep of the name in a directory that it fits, as `kept_in` says."""
        return tuple(dict.fromkeys(_ODD.sub("", each) for each in self._read))

    @property
    def made(self) -> tuple[str, ...]:
        """What a broker may have made of the name: regular expressions, literal for ASCII."""
        return tuple(dict.fromkeys(_ODD.sub(_put, each) for each in self._read))

    @property
    def _read(self) -> tuple[str, ...]:
        """How a broker may read the name: 4.3.6 takes a character and the marks behind it for one,
        and writes one "_" for an "e" with its accent as a character of its own.
        """
        text = f"{self.vhost}_{self.queue}"
        if text.isascii():
            return (text,)
        after = f"{text[1:]} "
        return text, "".join(text[at] for at, each in enumerate(after) if not _is_mark(each))

    def filled(self, other: QueueName) -> QueueName:
        """This name, with those parts of another one that this has not.

        Of which super stream a queue is a partition counts only for the very queue.
        """
        made = QueueName(
            self.cluster or other.cluster, self.vhost or other.vhost, self.queue or other.queue
        )
        whose = self if self.super_stream or made.key != other.key else other
        return replace(made, super_stream=whose.super_stream, routing_key=whose.routing_key)

    @property
    def of_queue(self) -> tuple[str, str, str, str]:
        """All but the cluster, in order."""
        return self.vhost, self.queue, self.super_stream, self.routing_key

    @property
    def key(self) -> tuple[str, str]:
        """Virtual host and queue: what tells it from the other queues of its cluster."""
        return self.vhost, self.queue


def kept_in(stream: str) -> str:
    """What is left of the queue's name in a directory; one of `kept` of each that fits it."""
    return _ODD.sub("", stream.rpartition("_")[0])


def _is_mark(character: str) -> bool:
    """Whether it belongs to the character before it."""
    return unicodedata.category(character).startswith("M") or character in "\u200c\u200d"


def _put(odd: re.Match[str]) -> str:
    """What a broker may have put for characters side by side: one repetition.

    Of several, all ways to share the same "_" among them would be tried, which may take hours.
    """
    least = sum(each.isascii() for each in odd[0])
    most = least + 4 * (len(odd[0]) - least)
    return "_" * least if most == least else f"_{{{least},{most}}}"
