"""The name by which people know a stream; its directory is what everything else goes by."""

from __future__ import annotations

import re
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
        return nanoseconds.isdigit() and re.fullmatch(self.made_pattern, made) is not None

    @property
    def kept(self) -> str:
        """What a broker keeps of the name in a directory that it fits, as `kept_in` says."""
        return _ODD.sub("", f"{self.vhost}_{self.queue}")

    @property
    def made_pattern(self) -> str:
        """What a broker may have made of the name: a regular expression, literal for ASCII."""
        return _ODD.sub(_put, f"{self.vhost}_{self.queue}")

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
    """What is left of the queue's name in a directory; the same as `kept` of each that fits it."""
    return _ODD.sub("", stream.rpartition("_")[0])


def _put(odd: re.Match[str]) -> str:
    """What a broker may have put for characters side by side: one repetition.

    Of several, all ways to share the same "_" among them would be tried, which may take hours.
    """
    least = sum(each.isascii() for each in odd[0])
    most = least + 4 * (len(odd[0]) - least)
    return "_" * least if most == least else f"_{{{least},{most}}}"
