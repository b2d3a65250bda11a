"""What a broker answers to whoever asks its stream port, as values and errors; no I/O.

Both connections to it read answers here: the blocking one of the agent, and the gateway's.
"""

from __future__ import annotations

import re
import struct

from coldstream.broker.frames import MAX_FRAME, Code, Fields, Key, binary, frame, string
from coldstream.errors import NotFoundError, PermissionDeniedError, UnavailableError

#: What is proposed to a broker, seconds.
HEARTBEAT_SECONDS = 60
#: A broker before this one keeps the file of every subscription open until the connection ends,
#: though it was unsubscribed from (rabbitmq-server#6317).
_CLOSES_FILES_SINCE = (3, 11, 3)
#: Subscriptions after which a connection to such a broker is to be replaced.
MOST_FILES = 50


class BrokerUnavailableError(UnavailableError):
    """The stream port does not answer properly.

    Attributes:
        usual_remedy: what to try, unless the command knows better.
    """

    usual_remedy = (
        "check that a broker listens there, with TLS or without as it was said, and that its"
        " plugin rabbitmq_stream is enabled; then run it again"
    )


class BrokerDeniedError(PermissionDeniedError):
    """The broker refuses it; as `BrokerUnavailableError`."""

    usual_remedy = (
        "check the user and what it may do there: `rabbitmqctl list_user_permissions USER`; to read"
        " a stream takes read, to publish takes read and write, to make one takes configure"
    )


class NoMemberError(BrokerUnavailableError):
    """This node has no running member of the stream; another one may."""


class UnmetError(BrokerUnavailableError):
    """The broker does not do it as it is asked for."""


class LogInError(BrokerDeniedError):
    """The broker does not let the user in, whatever stream is asked for."""


def version(text: str) -> tuple[int, int, int]:
    """The numbers of a broker's version; (0, 0, 0) for what is none."""
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?", text)
    return (0, 0, 0) if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def worn(text: str, subscriptions: int) -> bool:
    """Whether a connection has had too many subscriptions and must be replaced.

    Args:
        text: the broker's version.
        subscriptions: that were made on it.
    """
    return subscriptions >= MOST_FILES and version(text) < _CLOSES_FILES_SINCE


def plain(user: str, password: str) -> bytes:
    """The fields of a SaslAuthenticate, behind the correlation id."""
    return string("PLAIN") + binary(f"\0{user}\0{password}".encode())


def tuned() -> bytes:
    """The frame that answers a broker's Tune."""
    return frame(Key.TUNE, struct.pack(">II", MAX_FRAME, HEARTBEAT_SECONDS))


def checked(fields: Fields, who: str, about: str) -> Fields:
    """The fields of a response behind its code.

    Args:
        fields: behind the correlation id.
        who: answers what, for the message of an error.
        about: what was asked about, for the same.

    Raises:
        NotFoundError: there is no such stream, virtual host or offset.
        NoMemberError: this node has no member of the stream.
        UnmetError: a precondition fails.
        LogInError: user or password.
        PermissionDeniedError: rights.
        UnavailableError: any other code.
    """
    code = fields.number("H")
    if code == Code.OK:
        return fields
    message = f"{who} with code {code} ({about})"
    if code == Code.AUTHENTICATION_FAILED:
        raise LogInError(message)
    if code == Code.ACCESS_REFUSED:
        raise BrokerDeniedError(message)
    if code == Code.NO_VHOST:
        raise NotFoundError(f"{message}: there is none, or the user has no rights in it")
    if code in (Code.NO_STREAM, Code.NO_OFFSET):
        raise NotFoundError(message)
    if code == Code.NOT_AVAILABLE:
        raise NoMemberError(message)
    if code == Code.PRECONDITION_FAILED:
        raise UnmetError(message)
    raise BrokerUnavailableError(message)


def placed(fields: Fields, stream: str, where: str) -> list[tuple[str, int] | None]:
    """Where the writer of a stream and then its replicas are, from the fields of a Metadata.

    None for one that does not say; [] if nobody knows the members.

    Args:
        fields: behind the correlation id.
        stream: name.
        where: who answers, for the message of an error.

    Raises:
        NotFoundError: there is no such stream.
    """
    nodes = dict(fields.array(_node))
    for name, code, leader, replicas in fields.array(_metadata):
        if name != stream:
            continue
        if code == Code.NO_STREAM:
            raise NotFoundError(f"the broker at {where} has no stream {stream!r}")
        references = [leader, *replicas]
        return [nodes.get(each) for each in references] if code == Code.OK else []
    return []


def pair(fields: Fields) -> tuple[str, str]:
    """A row of properties."""
    return fields.string(), fields.string()


def statistic(fields: Fields) -> tuple[str, int]:
    """A row of StreamStats."""
    return fields.string(), fields.number("q")


def command(fields: Fields) -> int:
    """The key of a row of CommandVersions."""
    key, _, _ = fields.number("H"), fields.number("H"), fields.number("H")
    return key


def _node(fields: Fields) -> tuple[int, tuple[str, int]]:
    return fields.number("H"), (fields.string(), fields.number("I"))


def _metadata(fields: Fields) -> tuple[str, int, int, list[int]]:
    name, code, leader = fields.string(), fields.number("H"), fields.number("H")
    return name, code, leader, fields.array(lambda each: each.number("H"))
