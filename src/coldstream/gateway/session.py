"""One client's session as a value that changes with each request; no I/O, no clock.

    NEW --SaslAuthenticate--> KNOWN --Tune--> TUNED --Open--> OPEN

`decide` says what is to be done about a request: send these bytes, or find something out first and
answer then. What a client may not do yet, and what is no command, ends the connection, as a broker
ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from coldstream.broker.frames import Code, Key
from coldstream.gateway import answers
from coldstream.gateway.requests import (
    REFUSAL,
    AnyRequest,
    Authenticate,
    Credit,
    Named,
    Publish,
    Refusable,
    Request,
    Silent,
    Subscribe,
    Tuned,
    Unknown,
    Unsubscribe,
    Versions,
)
from coldstream.gateway.users import Rights

#: The client may ask for less; where it asks for none there is none.
HEARTBEAT_SECONDS = 60
#: Frames of a client that has not logged in are small.
MAX_FRAME_BEFORE_LOGIN = 2**14


class Phase(IntEnum):
    """How far a client has come."""

    NEW = 0
    KNOWN = 1
    TUNED = 2
    OPEN = 3


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame; `end` the connection then."""

    data: bytes
    end: bool = False


@dataclass(frozen=True, slots=True)
class Perform:
    """Find out what the answer is, and give it."""

    request: AnyRequest


@dataclass(frozen=True, slots=True)
class Grant:
    """Give a subscription credit."""

    subscription: int
    credit: int


@dataclass(frozen=True, slots=True)
class Detach:
    """End a subscription, then send a frame."""

    subscription: int
    data: bytes


Action = Send | Perform | Grant | Detach | None


@dataclass(slots=True)
class Session:
    """What is known of a client.

    Attributes:
        phase: how far it has come.
        user: that has logged in.
        rights: what he may do; None before the login.
        vhost: that was opened.
        heartbeat: seconds; 0 for none.
        deliver: version of Deliver that it takes.
        subscriptions: name of the stream of each.
        version: of coldstream.
    """

    phase: Phase = Phase.NEW
    user: str = ""
    rights: Rights | None = None
    vhost: str = ""
    heartbeat: int = HEARTBEAT_SECONDS
    deliver: int = 1
    subscriptions: dict[int, str] = field(default_factory=dict)
    version: str = "0"

    @property
    def max_frame(self) -> int:
        """Bytes of the next frame, at the most."""
        return MAX_FRAME_BEFORE_LOGIN if self.phase is Phase.NEW else answers.FRAME_MAX

    def logged_in(self, user: str, rights: Rights) -> None:
        """The login was right."""
        self.phase, self.user, self.rights = Phase.KNOWN, user, rights

    def changed(self, rights: Rights | None) -> None:
        """What the user may do is something else by now."""
        self.rights = rights

    def opened(self, vhost: str) -> None:
        """The virtual host may be entered."""
        self.phase, self.vhost = Phase.OPEN, vhost

    def lost(self, subscription: int) -> tuple[str, list[int]]:
        """The stream of a subscription, and all that are to it, none of which is one any more.

        A client that is told that a stream is gone takes it for the end of all of them.
        """
        stream = self.subscriptions[subscription]
        those = [each for each, name in self.subscriptions.items() if name == stream]
        for each in those:
            del self.subscriptions[each]
        return stream, those

    def may_read(self, vhost: str, name: str) -> bool:
        """Whether a stream may be read."""
        return self.rights is not None and self.rights.may_read(vhost, name)

    def decide(self, request: AnyRequest) -> Action:
        """What is to be done about a request."""
        if isinstance(request, Silent):
            return None
        if isinstance(request, Request) and request.key in _EARLY:
            return self._early(request)
        if self.phase is Phase.NEW:
            return _hang(Code.UNKNOWN_FRAME, "log in first")
        if isinstance(request, Tuned):
            return self._tuned(request)
        if isinstance(request, Named) and request.key is Key.OPEN:
            if self.phase is not Phase.TUNED:
                return _hang(Code.UNKNOWN_FRAME, "Open comes once, after Tune")
            return Perform(request)
        if self.phase is not Phase.OPEN:
            return _hang(Code.UNKNOWN_FRAME, "open a virtual host first")
        return self._open(request)

    def _early(self, request: Request) -> Action:
        """What is answered at any time."""
        if request.key is Key.PEER_PROPERTIES:
            return Send(answers.peer_properties(request.correlation, self.version))
        if request.key is Key.SASL_HANDSHAKE:
            return Send(answers.mechanisms(request.correlation))
        if request.key is Key.CLOSE:
            return Send(answers.response(Key.CLOSE, request.correlation), end=True)
        if isinstance(request, Authenticate) and self.phase is Phase.NEW:
            if request.mechanism != "PLAIN":
                return Send(answers.response(request.key, request.correlation, Code.NO_MECHANISM))
            return Perform(request)
        return _hang(Code.UNKNOWN_FRAME, "you have logged in")

    def _tuned(self, request: Tuned) -> Action:
        if self.phase is not Phase.KNOWN:
            return _hang(Code.UNKNOWN_FRAME, "Tune comes once")
        self.phase = Phase.TUNED
        self.heartbeat = min(request.heartbeat, HEARTBEAT_SECONDS)
        return None

    def _open(self, request: AnyRequest) -> Action:
        match request:
            case Subscribe():
                return self._subscribe(request)
            case Unsubscribe(key, correlation, subscription):
                if self.subscriptions.pop(subscription, None) is None:
                    return Send(answers.response(key, correlation, Code.NO_SUBSCRIPTION))
                return Detach(subscription, answers.response(key, correlation))
            case Credit(subscription, credit):
                if subscription not in self.subscriptions:
                    return Send(answers.no_credit(subscription))
                return Grant(subscription, credit)
            case Versions(_, correlation, versions):
                self.deliver = _deliver(versions)
                return Send(answers.versions(correlation))
            case Publish(publisher, ids):
                return Send(answers.publish_error(publisher, ids))
            case Refusable(key, correlation):
                return Send(answers.response(key, correlation, REFUSAL[key]))
            case Unknown(key):
                return _hang(Code.UNKNOWN_FRAME, f"command {key} is not known here")
        return Perform(request)

    def _subscribe(self, request: Subscribe) -> Action:
        key, correlation = request.key, request.correlation
        if request.subscription in self.subscriptions:
            return Send(answers.response(key, correlation, Code.SUBSCRIPTION_EXISTS))
        if request.takes_turns and not request.properties.get("name"):
            return Send(answers.response(key, correlation, Code.PRECONDITION_FAILED))
        return Perform(request)


_EARLY = (Key.PEER_PROPERTIES, Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE, Key.CLOSE)


def _deliver(versions: tuple[tuple[int, int, int], ...]) -> int:
    """The version of Deliver for a client that speaks these."""
    for key, lowest, highest in versions:
        if key == Key.DELIVER and lowest <= answers.DELIVER_V2 <= highest:
            return answers.DELIVER_V2
    return 1


def _hang(code: Code, reason: str) -> Send:
    return Send(answers.closing(code, reason), end=True)
