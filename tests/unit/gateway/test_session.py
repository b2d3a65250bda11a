from __future__ import annotations

import struct

import pytest

from coldstream.broker.frames import RESPONSE, Code, FrameError, Key, frame, properties, string
from coldstream.gateway.requests import (
    AnyRequest,
    Authenticate,
    Request,
    Tuned,
    TurnTaken,
    parse,
)
from coldstream.gateway.session import Perform, Phase, Send, Session
from coldstream.gateway.users import PatternRights
from coldstream.reader.spec import Offset

CORRELATION = struct.pack(">I", 1)


def asked(key: int, body: bytes = b"", version: int = 1) -> AnyRequest:
    return parse(frame(key, body, version=version)[4:])


def code_of(sent: object) -> tuple[int, int]:
    """Key and code of a frame that is sent."""
    assert isinstance(sent, Send)
    _, key, _, _, code = struct.unpack_from(">IHHIH", sent.data)
    return key & ~RESPONSE, code


def test_a_session_goes_its_steps_in_order() -> None:
    session = Session()
    login = asked(Key.SASL_AUTHENTICATE, CORRELATION + string("PLAIN") + struct.pack(">i", 0))
    assert session.decide(login) == Perform(login)
    session.logged_in("guest", PatternRights(".*"))
    opening = asked(Key.OPEN, CORRELATION + string("/"))
    early = session.decide(opening)
    assert isinstance(early, Send)
    assert early.end, "Open before Tune"
    assert session.decide(Tuned(2**20, 30)) is None
    assert (session.phase, session.heartbeat) == (Phase.TUNED, 30)
    assert session.decide(opening) == Perform(opening)
    session.opened("/")
    again = session.decide(opening)
    assert isinstance(again, Send)
    assert again.end, "Open twice"


@pytest.mark.parametrize("key", [Key.SUBSCRIBE, Key.METADATA, Key.PUBLISH, Key.TUNE, Key.OPEN])
def test_before_the_login_nothing_is_answered(key: Key) -> None:
    bodies = {
        Key.SUBSCRIBE: CORRELATION + b"\1" + string("s") + struct.pack(">HH", 1, 1),
        Key.METADATA: CORRELATION + struct.pack(">i", 0),
        Key.PUBLISH: struct.pack(">Bi", 1, 0),
        Key.TUNE: struct.pack(">II", 1, 1),
        Key.OPEN: CORRELATION + string("/"),
    }
    done = Session().decide(asked(key, bodies[key]))
    assert isinstance(done, Send)
    assert done.end
    assert code_of(done) == (Key.CLOSE, Code.UNKNOWN_FRAME)


def test_a_mechanism_that_is_not_plain_is_refused() -> None:
    login = asked(Key.SASL_AUTHENTICATE, CORRELATION + string("EXTERNAL") + struct.pack(">i", 0))
    assert code_of(Session().decide(login)) == (Key.SASL_AUTHENTICATE, Code.NO_MECHANISM)


def test_nobody_acts_as_another_user() -> None:
    secret = b"admin\0guest\0guest"
    login = asked(
        Key.SASL_AUTHENTICATE,
        CORRELATION + string("PLAIN") + struct.pack(">i", len(secret)) + secret,
    )
    assert isinstance(login, Authenticate)
    assert (login.user, login.password) == ("", "")


def test_a_password_is_not_shown() -> None:
    assert "geheim" not in repr(Authenticate(Key.SASL_AUTHENTICATE, 1, "PLAIN", "a", "geheim"))


def test_both_answers_to_tune_are_taken() -> None:
    for key in (Key.TUNE, Key.TUNE | RESPONSE):
        assert asked(key, struct.pack(">II", 1024, 5)) == Tuned(1024, 5)


def test_a_frame_of_a_client_that_is_not_known_is_small() -> None:
    session = Session()
    before = session.max_frame
    session.logged_in("guest", PatternRights(".*"))
    assert before < session.max_frame


def test_a_consumer_in_its_turn_says_where_it_goes_on_or_nothing() -> None:
    answer, ok = Key.CONSUMER_UPDATE | RESPONSE, struct.pack(">IH", 7, Code.OK)
    assert asked(answer, ok + struct.pack(">HQ", 4, 99)) == TurnTaken(7, Offset(99))
    assert asked(answer, ok + struct.pack(">H", 0)) == TurnTaken(7, None)
    for broken in (b"", ok, ok + struct.pack(">H", 6), ok + struct.pack(">HI", 4, 99)):
        with pytest.raises(FrameError):
            asked(answer, broken)


def test_a_subscription_needs_an_offset_where_a_turn_needs_none() -> None:
    with pytest.raises(FrameError):
        asked(Key.SUBSCRIBE, CORRELATION + b"\1" + string("s") + struct.pack(">HH", 0, 1))


def test_a_single_active_consumer_without_a_name_is_refused() -> None:
    session = Session(phase=Phase.OPEN)
    names: tuple[dict[str, str], ...] = ({}, {"name": ""})
    for name in names:
        more = properties({"single-active-consumer": "True", **name})
        body = CORRELATION + b"\1" + string("s") + struct.pack(">HH", 1, 1) + more
        decided = session.decide(asked(Key.SUBSCRIBE, body))
        assert code_of(decided) == (Key.SUBSCRIBE, Code.PRECONDITION_FAILED)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        CORRELATION,
        CORRELATION + b"\1" + struct.pack(">h", 100) + b"short",
        CORRELATION + b"\1" + string("s") + struct.pack(">HH", 9, 1),
        CORRELATION + b"\1" + string("s") + struct.pack(">HHi", 1, 1, 2**31 - 1),
        CORRELATION + b"\1" + string("s") + struct.pack(">HH", 1, 1)
        + properties({str(n): "" for n in range(201)}),
    ],
)  # fmt: skip
def test_a_subscription_that_claims_more_than_it_has_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        asked(Key.SUBSCRIBE, body)


@pytest.mark.parametrize(
    ("key", "head", "count"),
    [
        (Key.PUBLISH, b"\1", 2001),
        (Key.COMMAND_VERSIONS, CORRELATION, 257),
        (Key.SUBSCRIBE, CORRELATION + b"\1" + string("s") + struct.pack(">HH", 1, 1), 201),
    ],
)
def test_a_frame_of_very_many_parts_is_refused_before_they_are_parsed(
    key: Key, head: bytes, count: int
) -> None:
    """Twenty clients that sent 80,000 publishing ids a frame had all others wait for seconds."""
    with pytest.raises(FrameError, match=f"an array of {count}"):
        asked(key, head + struct.pack(">i", count) + bytes(20 * count))


def test_what_has_a_correlation_keeps_it() -> None:
    found = asked(Key.SASL_HANDSHAKE, struct.pack(">I", 77))
    assert isinstance(found, Request)
    assert found.correlation == 77
