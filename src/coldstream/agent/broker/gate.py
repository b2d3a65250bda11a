"""The gate: what is committed, as the node's own broker proves it.

This is rule R2 of docs/architecture.md. A broker's files prove nothing: a closed segment may be
uncommitted, and after a fail-over the old leader's files are another history for some seconds,
while leadership and statistics say otherwise. Only a chunk that the local broker delivers is
committed, and the same header in the local files means that all below it is the same. So the last
chunk that the broker gives is looked for in the files, and everything up to its end counts.

Tracking chunks are never delivered. One is proved by the next chunk of messages above it.

A proof holds while the chunk that proved it is where it was, and the connection is the same one;
whatever has been written since is proved anew. A broker tells of a stream that moves or is deleted
only those who subscribe to it just then, and the gate never does for long (measured on 3.10.8 and
4.3.6): so it does not listen for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from coldstream.agent.broker.committed import Known
from coldstream.agent.broker.listing import Listing, Names
from coldstream.agent.broker.namesakes import Candidate, Neighbours, belongs, doubt
from coldstream.agent.broker.own_broker import Broker, InTurn
from coldstream.agent.broker.proof import (
    AGAIN_MOST,
    AGAIN_SECONDS,
    Proof,
    bare,
    concluded,
    failed,
    holds,
    is_whole,
    newest,
    proved,
    unproved,
)
from coldstream.agent.disk.directory import scan
from coldstream.agent.disk.files import DISK, LogFiles
from coldstream.agent.disk.log import StreamLog
from coldstream.broker.answers import LogInError, NoMemberError
from coldstream.broker.limits import Limits
from coldstream.broker.management import StreamQueue
from coldstream.errors import (
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.names import MAX_OFFSET
from coldstream.osiris.chunk import parse_chunk_header

_PASS_SECONDS = 0.5
_SETTLED_SECONDS = 30.0
#: Who the writer is, is asked again with a proof, but not more often.
_ROLE_SECONDS = 10.0
#: Where another node uploads, what is committed here is asked for no more often.
_STANDBY_SECONDS = 5.0


@dataclass(slots=True)
class Gate:
    """A `CommittedOffsets` that asks the local broker.

    Args:
        data_dir: holds one directory a stream.
        broker: of this node.
        cluster: name for listings.
        given: queues of directories that an operator has named.
        files: where the directories are.
        alike: the other directories on this node that may be a queue's; as `Neighbours.of` by
            default.
        clock: monotonic seconds.
        pause: sleeps so many seconds.
    """

    data_dir: Path
    broker: Broker
    cluster: str = ""
    given: Mapping[str, QueueName] = field(default_factory=dict)
    files: LogFiles = DISK
    alike: Callable[[str, StreamQueue], Sequence[str]] | None = None
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _proofs: dict[str, Proof] = field(default_factory=dict)
    _listing: Listing = field(init=False)
    _alike: Callable[[str, StreamQueue], Sequence[str]] = field(init=False)
    _heard_at: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)  # of what is known
    _asked: InTurn = field(init=False)

    def __post_init__(self) -> None:
        self._asked = InTurn(self.broker, self.clock)
        self._listing = Listing(self.broker, self.clock)
        self._alike = Neighbours(self.data_dir).of if self.alike is None else self.alike

    def limit(self, stream: str) -> int:
        """As `CommittedOffsets` says; a stream is asked about from the first call on."""
        with self._lock:
            return self._proofs.setdefault(stream, Proof()).limit

    def known(self, stream: str) -> Known:
        """As `CommittedOffsets` says; what retention keeps is asked for every few minutes."""
        with self._lock:
            proof = self._proofs.get(stream, Proof())
        queue = proof.queue
        limits = Limits() if queue is None else self._listing.limits(queue)
        return Known(
            writer=proof.writer,
            whole=proof.whole,
            local=True,
            max_bytes=limits.max_bytes,
            max_age_ms=limits.max_age_ms,
            super_stream="" if queue is None else self._listing.partition(queue).super_stream,
            named=queue is not None,
            doubt=proof.doubt,
            trouble=proof.trouble,
            epoch=parse_chunk_header(proof.header).epoch if proof.limit else 0,
        )

    def warnings(self) -> list[str]:
        """Why nothing is known of some streams; a sentence for each reason."""
        with self._lock:
            silent = [(name, proof.trouble) for name, proof in self._proofs.items()]
        reasons: dict[str, list[str]] = {}
        for name, trouble in silent:
            if trouble:
                reasons.setdefault(trouble, []).append(name)
        return [
            f"of {len(names)} streams nothing new is proved to be committed: {trouble}"
            f" ({', '.join(sorted(names)[:3])}{', …' if len(names) > 3 else ''})"
            for trouble, names in reasons.items()
        ]

    @property
    def names(self) -> Mapping[str, QueueName]:
        """Queue of each directory, as far as it is settled; it grows while the gate looks."""
        return Names(self.asked, self.name)

    def name(self, stream: str) -> QueueName | None:
        """Queue of one directory; None if it is not settled."""
        with self._lock:
            queue = self._proofs.get(stream, Proof()).queue
        if queue is None:
            return self.given.get(stream)
        of = self._listing.partition(queue)
        return QueueName(self.cluster, queue.vhost, queue.queue, of.super_stream, of.routing_key)

    def asked(self) -> list[str]:
        """Directories that have been asked about."""
        with self._lock:
            return list(self._proofs)

    @contextmanager
    def looking(self, *, once: bool) -> Iterator[None]:
        """Have the broker for as long as the context lasts.

        Args:
            once: ask first, until every directory is proved or half a minute is over: what is
                committed at the start is asked for only once.
        """
        if once:
            self._settle()
        try:
            yield
        finally:
            self._asked.close()

    def _settle(self) -> None:
        try:
            streams = scan(self.data_dir, ()).streams
        except OSError:
            return  # the agent says so
        end = self.clock() + _SETTLED_SECONDS
        while True:
            for each in streams:
                self.refresh(each, self.clock())
            # Of one without a message nothing is to be proved, and nothing is the matter with it.
            left = [each for each in streams if self._waits(each)]
            if not left or self.clock() > end:
                return
            self.pause(_PASS_SECONDS)

    def _waits(self, stream: str) -> bool:
        known = self.known(stream)
        return bool(known.doubt) or (bool(known.trouble) and not self.limit(stream))

    def refresh(self, stream: str, now: float) -> float:
        """As `CommittedOffsets` says; threads may call it, each for another stream."""
        with self._lock:
            before = self._proofs.setdefault(stream, Proof())
        if self._knows_enough(stream, before, now):
            after = self._looked(stream, before, now)
        else:
            trouble = self._listing.silence(self.clock()) or before.trouble
            after = replace(before, again_at=now + AGAIN_SECONDS, trouble=trouble)
        with self._lock:
            self._proofs[stream] = after
        return after.again_at

    def ask(self, stream: str) -> None:
        """Find out what a directory's queue is called, if it is time to."""
        self.refresh(stream, self.clock())

    def conclude(self, log: StreamLog, sure: int) -> None:
        """As `CommittedOffsets` says."""
        with self._lock:
            proof = self._proofs.get(log.stream, Proof())
        after = concluded(log, proof, sure)
        with self._lock:
            self._proofs[log.stream] = after

    def forget(self, stream: str) -> None:
        """As `CommittedOffsets` says."""
        with self._lock:
            self._proofs.pop(stream, None)

    def _knows_enough(self, stream: str, proof: Proof, now: float) -> bool:
        """Whether it can be asked about: not while somebody else is asking what it is called."""
        if now < self._asked.silent_until or (proof.trouble and now < proof.again_at):
            return True  # nothing is asked
        settled = self._is_given(stream) or proof.queue is not None
        return self._listing.learn(now, settled=settled)

    def _looked(self, stream: str, proof: Proof, now: float) -> Proof:
        if now - self._heard_at >= _PASS_SECONDS:
            self._heard_at = now
            self._asked.keep_up()
        if proof.limit and proof.generation != self._asked.generation():
            # Whoever answered then may be another one by now, and the files another history.
            proof = unproved(proof, now)
        log = StreamLog(self.data_dir / stream, self.files)
        if proof.limit and not holds(log, proof):
            proof = unproved(proof, now)
        if proof.trouble and now < proof.again_at:
            return proof
        if now < self._asked.silent_until:
            return replace(proof, trouble=self._asked.silence, again_at=self._asked.silent_until)
        try:
            seen = newest(log)
            if seen is not None and seen == proof.seen and proof.whole and not proof.doubt:
                return replace(proof, trouble="")  # nothing has come that could be proved
            if seen is not None and proof.limit and not proof.doubt and is_whole(log, proof):
                return replace(proof, seen=seen, whole=True, trouble="")
            if seen is None or (seen == proof.seen and now < proof.again_at):
                return proof
            if not proof.writer and proof.limit and now < proof.again_at:
                return replace(proof, whole=False)  # another node's agent is quicker
            if not proof.limit and not log.messages_end(0):
                return bare(proof, seen, now, empty=not log.end())
            return self._proved(log, proof, seen, now)
        except (UnavailableError, LogInError) as exc:
            again_at = max(self._asked.silent_until, now + AGAIN_SECONDS)
            return replace(proof, trouble=exc.reason, again_at=again_at)
        except ColdstreamError as exc:
            return failed(proof, exc.reason, now)
        except OSError as exc:
            return failed(proof, f"a file cannot be read: {exc.strerror or exc}", now)

    def _proved(self, log: StreamLog, proof: Proof, seen: tuple[int, object], now: float) -> Proof:
        trouble, generation = "", self._asked.generation()
        left: list[Candidate] = []  # whose directory it may be
        for queue in self._possible(log.stream, proof):
            try:
                header = self._asked.last_header(queue.vhost, queue.queue)
            except LogInError:
                raise
            except (NotFoundError, NoMemberError, PermissionDeniedError) as exc:
                # Deleted just now, or a namesake that is none, or is not here or not for this user.
                trouble = exc.reason if queue == proof.queue else trouble or exc.reason
                left.append(Candidate(queue))
                continue
            trouble = _UNPROVED
            try:
                limit = proved(log, header)
            except CorruptDataError:
                limit = header = None  # a torn tail, or a file that is rewritten just now
            if limit is None and header is not None:
                continue  # the queue's own directory has its last chunk, so it is another one
            candidate = Candidate(queue, header or b"", limit or 0)
            its = self._belongs(log, proof, candidate) if candidate.limit else None
            if its:
                made = self._counted(log, proof, seen, now, candidate)
                return replace(made, generation=generation)
            if its is None:
                left.append(candidate)
        mine = next((each for each in left if each.limit and each.queue == proof.queue), None)
        unsure = any(each.limit for each in left)
        least = mine or min(left, key=lambda each: each.limit, default=None)
        if least is not None and least.limit and (mine or proof.queue is None):
            why = "" if mine else doubt(left)
            made = self._counted(log, proof, seen, now, least, why)
            return replace(made, generation=generation)
        trouble = doubt(left) if unsure else trouble
        return failed(proof, trouble or self._listing.trouble or _UNTOLD, now)

    def _belongs(self, log: StreamLog, proof: Proof, candidate: Candidate) -> bool | None:
        """As `namesakes.belongs`; True for a queue that is settled or given."""
        if (candidate.queue == proof.queue and not proof.failures) or self._is_given(log.stream):
            return True
        alike = self._alike(log.stream, candidate.queue)
        others = [StreamLog(self.data_dir / each, self.files) for each in alike]
        with self._lock:
            known = {each.stream: self._proofs.get(each.stream, Proof()) for each in others}
        settled = {name: each.queue for name, each in known.items() if each.queue is not None}
        settled |= {name: self._given(name) for name in known if self._is_given(name)}
        return belongs(log, candidate, others, settled, self._asked)

    def _counted(
        self,
        log: StreamLog,
        proof: Proof,
        seen: tuple[int, object],
        now: float,
        found: Candidate,
        why: str = "",
    ) -> Proof:
        """What was proved; the rest has come since, or is tracking data, and waits for a chunk."""
        stuck = proof.failures + 1 if found.limit == proof.limit else 0
        wait = min(AGAIN_MOST, AGAIN_SECONDS * 2**stuck)
        writer, role_at = self._role(found.queue, proof, now)
        wait = wait if writer else max(wait, _STANDBY_SECONDS)
        return Proof(
            limit=found.limit,
            queue=None if why else found.queue,
            seen=seen,
            whole=found.limit >= self._end(log),
            header=found.header,
            failures=stuck,
            again_at=now + wait,
            writer=writer,
            role_at=role_at,
            doubt=why,
        )

    def _role(self, queue: StreamQueue, proof: Proof, now: float) -> tuple[bool, float]:
        """Whether the writer is here, and when that was asked; what nobody can say stays."""
        if now - proof.role_at < _ROLE_SECONDS and proof.generation == self._asked.generation():
            return proof.writer, proof.role_at
        try:
            leads = self._asked.leads(queue.vhost, queue.queue)
        except ColdstreamError:
            leads = None
        return proof.writer if leads is None else leads, now

    def _end(self, log: StreamLog) -> int:
        near = log.chunks_near(MAX_OFFSET, committed=MAX_OFFSET)
        return near[-1].next_offset if near else 0

    def _possible(self, stream: str, proof: Proof) -> Iterator[StreamQueue]:
        """Queues to which a directory may belong: the settled one, what was given, what fits.

        Where the settled one fails, all that fit may: it may be none any more.
        """
        if proof.queue is not None and not proof.failures:
            yield proof.queue
        elif self._is_given(stream):
            yield self._given(stream)
        else:
            fitting = list(self._listing.fitting(stream))
            if proof.queue is not None and proof.queue not in fitting:
                yield proof.queue
            yield from fitting

    def _given(self, stream: str) -> StreamQueue:
        return StreamQueue(self.given[stream].vhost, self.given[stream].queue)

    def _is_given(self, stream: str) -> bool:
        return stream in self.given and bool(self.given[stream].queue)


_UNTOLD = (
    "the broker tells of no stream to which the directory can belong: it was deleted, or the user"
    " may not see its virtual host"
)
_UNPROVED = "the broker's last chunk is not in the local files yet, or it has none"
