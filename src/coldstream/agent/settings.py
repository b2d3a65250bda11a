"""The agent's settings, with the limits within which they make sense."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.fragment import MAX_FRAGMENT_SIZE


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How the agent cuts, uploads and waits.

    Attributes:
        target_size: bytes of chunks in a full fragment.
        flush_ms: a chunk waits at most this long before its fragment is cut, full or not.
        memory_budget: bytes of all upload buffers together.
        uploads: PUTs at the same time.
        looks: streams that are looked at, claimed or committed at the same time.
        takeover_seconds: where the node of a stream's writer uploads nothing for so long behind the
            flush time, another member's agent does.
        upload_tail: what is still held of a stream that the broker deletes is uploaded.
        held_bytes: of files that the broker has removed and that are kept until they are durable.
        poll_seconds: between two looks at the directories.
        nudge_seconds: the manifest may stand still this long before a commit is asked for.
        upload_rate: bytes a second of all uploads together; 0 for no limit.
        once: upload what is there at the start, wait until the manifests have followed, end.
        rescan_seconds: a stream that failed is tried again after this long.
        standstill_seconds: a stream that waits may stand still for this long before it is told.
        standstill_again_seconds: from one time that it is told to the next.
        last_copy: no other member of any stream has older data than the directories here; what they
            have lost before it was uploaded is declared lost.
        bucket: what messages call the bucket; "" if nobody has said so.
        node: name of this machine in its heartbeats.
        heartbeat_seconds: from one heartbeat to the next.
        compare_seconds: from one look to the next at what others have uploaded.
        watch_seconds: from one look at an item to the next, while the manifest has to follow.

    Raises:
        InvalidInputError: a value is outside its limits.
    """

    target_size: int = 64 * 2**20
    flush_ms: int = 60_000
    memory_budget: int = 256 * 2**20
    uploads: int = 3
    looks: int = 8
    takeover_seconds: float = 60.0
    upload_tail: bool = True
    held_bytes: int = 8 * 2**30
    poll_seconds: float = 1.0
    nudge_seconds: float = 5.0
    upload_rate: int = 0
    once: bool = False
    rescan_seconds: float = 30.0
    last_copy: bool = False
    bucket: str = ""
    node: str = ""
    heartbeat_seconds: float = 60.0
    compare_seconds: float = 600.0
    watch_seconds: float = 0.5
    standstill_seconds: float = 180.0
    standstill_again_seconds: float = 300.0

    def __post_init__(self) -> None:
        rules = (
            (1 <= self.target_size <= MAX_FRAGMENT_SIZE // 2, "target size: 1 byte to 2.5 GiB"),
            (self.flush_ms >= 0, "flush time: not negative"),
            (
                self.memory_budget >= self.target_size + 2**20,
                "memory budget: at least one full fragment and 1 MiB",
            ),
            (1 <= self.uploads <= 64, "parallel uploads: 1 to 64"),
            (self.upload_rate >= 0, "upload rate: not negative"),
            (1 <= self.looks <= 64, "parallel looks: 1 to 64"),
            (self.takeover_seconds > 0, "time before a take-over: more than 0 s"),
            (self.held_bytes >= 0, "bytes of removed files: not negative"),
            (0 < self.heartbeat_seconds <= 3600, "time between heartbeats: up to an hour"),
            (self.watch_seconds > 0, "time between looks at an item: more than 0 s"),
            (self.compare_seconds > 0, "time between comparisons: more than 0 s"),
            (self.poll_seconds > 0, "poll interval: more than 0 s"),
            (self.nudge_seconds > 0, "time before a commit is asked for: more than 0 s"),
            (
                self.standstill_seconds > 0 and self.standstill_again_seconds > 0,
                "time before a stream without progress is told: more than 0 s",
            ),
        )
        for holds, words in rules:
            if not holds:
                raise InvalidInputError(f"setting out of range; {words}")
