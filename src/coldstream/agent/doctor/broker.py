"""What the node's own broker answers: its ports, whom it lets in, and what it proves committed."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from coldstream.agent.broker.gate import Gate
from coldstream.agent.disk.directory import scan
from coldstream.agent.disk.log import StreamLog
from coldstream.agent.doctor.findings import Check, Finding, failed, of_error, ok, warning
from coldstream.broker.connection import Connection, StreamUri
from coldstream.broker.management import Management, StreamQueue
from coldstream.broker.node import Node
from coldstream.errors import (
    ColdstreamError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.manifest.catalog import QueueName
from coldstream.manifest.queue_name import kept_in
from coldstream.names import MAX_OFFSET
from coldstream.wording import listed

_SECONDS = 5.0
#: A stream that is written to all the time is proved at the second look or the third.
_PROOF_SECONDS = 10.0
_ENABLE = (
    "`rabbitmq-plugins enable rabbitmq_stream` on this node, or set --stream-uri to where it"
    " listens"
)
_ENABLE_MANAGEMENT = (
    "`rabbitmq-plugins enable rabbitmq_management`, or set --management-uri to where it listens"
)
_LOG_IN = "correct user and password in --stream-uri, and see `rabbitmqctl authenticate_user USER`"


@dataclass(slots=True)
class BrokerChecks:
    """The checks of one node's broker; each uses what those before it have found.

    Args:
        uri: of the stream port.
        management: of the API; None if nobody says where it is.
        data_dir: holds one directory a stream.
        given: queues of directories that an operator has named.
        most: streams whose last chunk is looked for.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    uri: StreamUri
    management: Management | None
    data_dir: Path
    given: Mapping[str, QueueName] = field(default_factory=dict)
    most: int = 5
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _vhosts: list[str] = field(default_factory=list)

    def checks(self) -> list[Check]:
        """In the order in which they build upon each other."""
        found = [Check("stream port", self.port, _ENABLE)]
        if self.management is not None:
            look = partial(self.managed, self.management)
            found.append(Check("management API", look, _ENABLE_MANAGEMENT))
        return [
            *found,
            Check("broker", self.logged_in, _ENABLE),
            Check("virtual hosts", self.vhosts, _LOG_IN),
            Check("committed", self.proved, _ENABLE, _PROOF_SECONDS + 4 * _SECONDS),
        ]

    def port(self) -> Iterator[Finding]:
        """Whether anybody listens at the stream port."""
        socket.create_connection((self.uri.host, self.uri.port), timeout=_SECONDS).close()
        yield ok("stream port", f"{self.uri} can be reached")

    def managed(self, management: Management) -> Iterator[Finding]:
        """Whether the management API tells what the streams are called."""
        about = "management API"
        try:
            streams = management.streams()
        except PermissionDeniedError as exc:
            words = (
                "correct user and password in --management-uri, and give the user the tag:"
                f" `rabbitmqctl set_user_tags {management.user} monitoring`"
            )
            yield of_error(about, exc, words)
            return
        self._vhosts = sorted({each.vhost for each in streams})
        where = f"{management.host}:{management.port}"
        if not streams and self._streams():
            said = f"{where} tells the user {management.user!r} of no stream, and files there are"
            yield warning(about, said, self._permit(self._some_vhost()))
            return
        vhosts = f"; virtual hosts: {listed(sorted(self._vhosts))}" if streams else ""
        count = len(streams)
        yield ok(about, f"{where} tells of {count} stream{'' if count == 1 else 's'}{vhosts}")
        yield from self._untold(management, streams)

    def _untold(self, management: Management, streams: Sequence[StreamQueue]) -> Iterator[Finding]:
        """Directories that no stream which the user sees has: nothing of them is uploaded."""
        names = (QueueName("", each.vhost, each.queue) for each in streams)
        told = {kept for name in names for kept in name.kept}
        named = {stream for stream, name in self.given.items() if name.queue}
        untold = [
            each for each in self._streams() if each not in named and kept_in(each) not in told
        ]
        if not untold:
            return
        closed = management.closed_vhosts()
        said = (
            f"no stream that the user {management.user!r} sees is that of {listed(sorted(untold))}"
        )
        if closed:
            said += f"; it does not see those in {listed(sorted(closed))}"
        deleted = "; the broker removes the directory of a stream that was deleted"
        permit = self._permit(closed[0]) if closed else self._permit("VHOST")
        yield warning("management API", said, permit + deleted)

    def logged_in(self) -> Iterator[Finding]:
        """Whether what listens is a stream listener that lets the user in, and which release."""
        about = "broker"
        try:
            connection = self._connect(self._some_vhost())
        except PermissionDeniedError as exc:
            yield of_error(about, exc, _LOG_IN)
        except NotFoundError as exc:
            yield of_error(about, exc, self._permit(self._some_vhost()))
        except UnavailableError as exc:
            tls = isinstance(exc.__cause__, ssl.SSLError)
            yield of_error(about, exc, self._of_tls() if tls else _ENABLE)
        else:
            connection.close()
            said = connection.properties
            release = f"{said.get('product', 'a broker')} {said.get('version', '?')}"
            over = " over TLS" if self.uri.tls else ""
            yield ok(about, f"{release} lets the user {self.uri.user!r} in{over}")

    def _of_tls(self) -> str:
        return (
            "make the broker's certificate one that this machine trusts and that names"
            f" {self.uri.host!r}, or use the port of its TLS listener"
        )

    def _permit(self, vhost: str) -> str:
        return (
            f"let the user read: `rabbitmqctl set_permissions -p {vhost} {self.uri.user} '' ''"
            " '.*'`, which replaces what it may do there now"
        )

    def vhosts(self) -> Iterator[Finding]:
        """Whether the user may enter every virtual host that has streams."""
        about, closed = "virtual hosts", []
        for vhost in self._vhosts:
            try:
                self._connect(vhost).close()
            except (NotFoundError, PermissionDeniedError):
                closed.append(vhost)
        if closed:
            said = f"the user {self.uri.user!r} may not enter {listed(sorted(closed))}"
            yield failed(about, said, self._permit(closed[0]))
        elif self._vhosts:
            yield ok(about, f"the user may enter {listed(sorted(self._vhosts))}")

    def proved(self) -> Iterator[Finding]:
        """Whether the broker's last chunks are those of the local files: rule R2."""
        about = "committed"
        streams = list(islice(filter(self._holds, self._streams()), self.most))
        if not streams:
            yield ok(about, "no stream has a chunk yet that the broker could prove")
            return
        gate = self._looked(streams)
        proved = [each for each in streams if gate.limit(each)]
        names = [gate.name(each) or QueueName() for each in proved]
        if proved:
            queues = listed(sorted([f"{each.vhost}/{each.queue}" for each in names]))
            said = f"of {len(proved)} of {len(streams)} streams tried the broker proves what is"
            yield ok(about, f"{said} committed ({queues})")
        for trouble in gate.warnings():
            remedy = (
                "mend what failed above, or set --stream-uri to the broker that writes to"
                f" --data-dir, or {self._permit(self._some_vhost())}"
            )
            # A directory of a stream that was deleted just now is no reason to despair.
            yield (warning if proved else failed)(about, trouble, remedy)

    def _looked(self, streams: Sequence[str]) -> Gate:
        """A gate that has looked until everything is proved, or for long enough."""
        node = Node(self.uri, self.management, seconds=_SECONDS)
        gate = Gate(self.data_dir, node, given=self.given)
        end = self.clock() + _PROOF_SECONDS
        try:
            while True:
                for each in streams:
                    gate.refresh(each, self.clock())
                if all(gate.limit(each) for each in streams) or self.clock() > end:
                    return gate
                self.sleep(0.5)
        finally:
            node.close()

    def _streams(self) -> Sequence[str]:
        """Directories of streams; none where that cannot be told, which another check tells."""
        try:
            return scan(self.data_dir, ()).streams
        except OSError:
            return ()

    def _holds(self, stream: str) -> bool:
        """Whether a stream has any chunk."""
        try:
            return bool(
                StreamLog(self.data_dir / stream).chunks_near(MAX_OFFSET, committed=MAX_OFFSET)
            )
        except (ColdstreamError, OSError):
            return True  # the proof tells what is wrong

    def _some_vhost(self) -> str:
        """A virtual host that is there, as far as anybody has said so."""
        named = sorted({each.vhost for each in self.given.values() if each.queue})
        return next(iter([*self._vhosts, *named]), "/")

    def _connect(self, vhost: str) -> Connection:
        return Connection(self.uri, vhost, seconds=_SECONDS)
