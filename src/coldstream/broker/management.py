"""The management API of a broker: which queues are streams, and what they are called."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from coldstream.broker.http import Deadline, TimedConnection
from coldstream.broker.limits import Limits, limits_of
from coldstream.broker.tls import Tls, refused
from coldstream.errors import (
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from coldstream.names import MAX_NAME

#: Totals are never asked for: each node collects those of its own queues, and the answer silently
#: leaves out whatever has not come within a second (3.10.8 and 4.3.6).
_PATH = "/api/queues?columns=name,vhost,type,arguments,policy,operator_policy&disable_stats=true"
#: By the column of a queue that names one.
_POLICIES = {"policy": "/api/policies", "operator_policy": "/api/operator-policies"}
_ONE = "?columns=name&page=1&page_size=1&disable_stats=true"
_EXCHANGES = "/api/exchanges?columns=name,vhost,arguments"
_DEFINITIONS = "?columns=vhost,name,definition"
#: An answer of a hundred thousand queues with long names has fewer bytes.
_MAX_BYTES = 256 * 2**20
#: A whole answer may take so many times as long as its beginning.
_WHOLE = 3


class ApiUnavailableError(UnavailableError):
    """The management API does not answer properly; as `broker.answers.BrokerUnavailableError`."""

    usual_remedy = (
        "check that a broker's management API listens there, with TLS or without as it was said"
        " (`rabbitmq-plugins enable rabbitmq_management`), then run it again"
    )


class ApiDeniedError(PermissionDeniedError):
    """The management API refuses the user; as `broker.answers.BrokerUnavailableError`."""

    usual_remedy = (
        "check user and password (`rabbitmqctl authenticate_user USER`), and the user's tag"
        " (`rabbitmqctl list_users`)"
    )


@dataclass(frozen=True, slots=True)
class Partition:
    """What a queue is to a super stream; both "" if it is no partition of any.

    Attributes:
        super_stream: name of its exchange.
        routing_key: by which the exchange finds the queue.
    """

    super_stream: str = ""
    routing_key: str = ""


@dataclass(frozen=True, slots=True)
class StreamQueue:
    """A queue of type stream.

    Attributes:
        vhost: virtual host.
        queue: name.
        limits: of its local retention, as far as they are known.
    """

    vhost: str
    queue: str
    limits: Limits = field(default=Limits(), compare=False)


@dataclass(frozen=True, slots=True)
class Management:
    """The API of one node.

    Attributes:
        host: name or address.
        port: of the listener.
        user: name; needs the tag `management`, and sees the queues of the virtual hosts that it may
            enter.
        password: of the user.
        tls: how to trust it; None for http.
        seconds: that may pass until something comes. A whole answer may take three times as long:
            that of a broker with ten thousand queues has megabytes.
        clock: monotonic seconds.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: Tls | None = None
    seconds: float = 10.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Management:
        """From `http://USER:PASSWORD@HOST:PORT`, or `https://`.

        Raises:
            InvalidInputError: it is none; the message does not repeat it, it may have a password.
                Or as `Tls.parse`.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https"):
            raise InvalidInputError("a management URI is http://USER:PASSWORD@HOST:PORT")
        return cls(
            parts.hostname or "localhost",
            port or (15671 if parts.scheme == "https" else 15672),
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
            Tls.parse(parts.query, tls=parts.scheme == "https"),
        )

    def streams(self) -> list[StreamQueue]:
        """All streams that the user may see.

        Raises:
            UnavailableError: no answer, none of a broker, or a certificate that is not trusted.
            InvalidInputError: the file of authorities cannot be used any more.
            PermissionDeniedError: the user may not ask.
        """
        rows = self.get(_PATH)
        if not isinstance(rows, list):
            raise ApiUnavailableError(f"{self._where} does not answer as a broker does")
        rows = [row for row in rows if isinstance(row, dict) and row.get("type") == "stream"]
        definitions = self._definitions(rows)
        found = []
        for row in rows:
            vhost, queue = row.get("vhost"), row.get("name")
            if isinstance(vhost, str) and isinstance(queue, str):
                applied = [definitions.get((kind, vhost, str(row.get(kind)))) for kind in _POLICIES]
                limits = limits_of(row.get("arguments"), *applied)
                found.append(StreamQueue(vhost, queue, limits))
        return found

    def members(self, vhost: str, queue: str) -> list[str]:
        """Nodes that have a member of a stream, also those that do not run just now.

        Raises:
            NotFoundError: there is no such stream.
            UnavailableError: the node does not say: 3.10.8 knows it from what the writer's node
                tells every 5 s. Or as `streams`.
            InvalidInputError, PermissionDeniedError: as `streams`.
        """
        where = f"/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}?columns=members"
        told = self.get(where)
        members = told.get("members") if isinstance(told, dict) else None
        if not isinstance(members, list) or not members:
            raise ApiUnavailableError(f"{self._where} does not say which members {queue!r} has")
        return [str(each) for each in members]

    def sees_all(self) -> bool:
        """Whether the user sees the queues of all virtual hosts.

        An administrator does. Who has the tag `monitoring` is told of every virtual host, and of
        queues in those only in which he has rights (3.10.8 and 4.3.6); others are told of neither.

        Raises:
            UnavailableError, InvalidInputError, PermissionDeniedError: as `streams`.
        """
        told = self.get("/api/whoami")
        tags = told.get("tags") if isinstance(told, dict) else None
        words = tags.split(",") if isinstance(tags, str) else tags
        if not isinstance(words, list):
            return False
        return "administrator" in words or ("monitoring" in words and not self.closed_vhosts())

    def knows_all(self) -> bool:
        """Whether the node has most of its cluster beside it, and has always had.

        One that was cut off from the others does not know the queues that were made there: while it
        is alone, and on 3.10.8 also later, until an operator starts one side of the partition anew.

        Raises:
            UnavailableError, InvalidInputError, PermissionDeniedError: as `streams`.
        """
        rows = self.get("/api/nodes?columns=name,running,partitions")
        nodes = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        running = sum(row.get("running") is True for row in nodes)
        return 2 * running > len(nodes) and not any(row.get("partitions") for row in nodes)

    def closed_vhosts(self) -> list[str]:
        """Virtual hosts that the user is told of, but not of the queues in them.

        Raises:
            UnavailableError, InvalidInputError, PermissionDeniedError: as `streams`.
        """
        rows = self.get("/api/vhosts?columns=name")
        if not isinstance(rows, list):
            raise ApiUnavailableError(f"{self._where} does not answer as a broker does")
        names = [row["name"] for row in rows if isinstance(row, dict) and "name" in row]
        return [each for each in names if not self._may_list(str(each))]

    def _may_list(self, vhost: str) -> bool:
        try:
            self.get(f"/api/queues/{quote(vhost, safe='')}{_ONE}")
        except (PermissionDeniedError, NotFoundError):
            return False  # 3.10.8 refuses; 4.3.6 answers as if there were no such virtual host
        return True

    def super_streams(self) -> dict[tuple[str, str], Partition]:
        """What of which super stream each partition is, by (virtual host, queue).

        A super stream is an exchange with an argument that says so, and its partitions are bound to
        it. Nothing else tells them from streams that are called alike. Of several bindings of one
        partition the first counts.

        Raises:
            UnavailableError, InvalidInputError, PermissionDeniedError: as `streams`.
        """
        found: dict[tuple[str, str], Partition] = {}
        rows = self.get(_EXCHANGES)
        for row in rows if isinstance(rows, list) else ():
            arguments = row.get("arguments") if isinstance(row, dict) else None
            if not isinstance(arguments, dict) or arguments.get("x-super-stream") is not True:
                continue
            vhost, name = str(row.get("vhost")), str(row.get("name"))
            path = f"/api/exchanges/{quote(vhost, safe='')}/{quote(name, safe='')}/bindings/source"
            bindings = self.get(path)
            for each in bindings if isinstance(bindings, list) else ():
                if isinstance(each, dict) and each.get("destination_type") == "queue":
                    made = Partition(name, str(each.get("routing_key", ""))[:MAX_NAME])
                    found.setdefault((vhost, str(each.get("destination"))), made)
        return found

    def _definitions(self, rows: list[dict[str, Any]]) -> Mapping[tuple[str, str, str], object]:
        """Definitions by (column, virtual host, name) of the policies that queues name.

        Not every user may read them: then a queue's arguments are all that is known.
        """
        found: dict[tuple[str, str, str], object] = {}
        for kind, path in _POLICIES.items():
            if not any(row.get(kind) for row in rows):
                continue
            try:
                policies = self.get(path + _DEFINITIONS)
            except PermissionDeniedError:
                continue
            for each in policies if isinstance(policies, list) else ():
                if isinstance(each, dict):
                    key = kind, str(each.get("vhost")), str(each.get("name"))
                    found[key] = each.get("definition")
        return found

    @property
    def _where(self) -> str:
        return f"the management API at {self.host}:{self.port}"

    def _connection(self) -> TimedConnection:
        end = self.clock() + _WHOLE * self.seconds
        deadline = Deadline(end, self.clock, self.seconds)
        tls, name = (None, "") if self.tls is None else (self.tls.context(), self.tls.name)
        return TimedConnection(self.host, self.port, deadline, tls, name or self.host)

    def get(self, path: str) -> Any:
        """What the API answers at a path, parsed.

        Raises:
            NotFoundError: there is nothing.
            UnavailableError, InvalidInputError, PermissionDeniedError: as `streams`.
        """
        secret = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", path, headers={"Authorization": f"Basic {secret}"})
                with connection.getresponse() as response:
                    body = response.read(_MAX_BYTES + 1)
        except TimeoutError as exc:
            raise ApiUnavailableError(
                f"{self._where} has not answered within {_WHOLE * self.seconds:g} s,"
                f" or has been silent for {self.seconds:g} s"
            ) from exc
        except (OSError, HTTPException) as exc:
            why = refused(exc) if isinstance(exc, OSError) else f"does not answer: {exc}"
            raise ApiUnavailableError(f"{self._where} {why}") from exc
        if response.status in (401, 403):
            raise ApiDeniedError(f"{self._where} refuses the user {self.user!r}")
        if response.status == 404:
            raise NotFoundError(f"{self._where} has nothing at {path[:300]}")
        if response.status != 200 or len(body) > _MAX_BYTES:
            raise ApiUnavailableError(f"{self._where} answers with {response.status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise ApiUnavailableError(f"{self._where} does not answer as a broker does") from exc
