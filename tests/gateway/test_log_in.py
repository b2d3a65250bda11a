"""Many clients that log in at once."""

from __future__ import annotations

import threading

from coldstream.broker.frames import Key, binary, frame, string
from coldstream.gateway.users import PatternRights, Rights
from tests.support.gateway import Gateway
from tests.support.raw_client import RawClient
from tests.support.tier import Tier

SECRET = string("PLAIN") + binary(b"\0guest\0guest")


class Slow:
    """Users whose passwords take until they are told."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Semaphore(0), threading.Event()
        self.count = 0

    def log_in(self, user: str, password: str) -> Rights | None:
        del user, password
        self.count += 1
        self.asked.release()
        assert self.go.wait(60)
        return PatternRights(".*")

    def known(self, user: str) -> Rights | None:
        del user
        return PatternRights(".*")


def test_the_password_of_a_client_that_has_given_up_is_not_checked_before_those_of_others() -> None:
    """Else a gateway whose clients give up in time would check nothing but what nobody awaits."""
    users = Slow()
    with Gateway(Tier(), users=users) as gateway:
        busy = [RawClient(gateway.port) for _ in range(2)]
        for each in busy:
            each.socket.sendall(frame(Key.SASL_AUTHENTICATE, b"\0\0\0\1" + SECRET))
            assert users.asked.acquire(timeout=60)
        late = [RawClient(gateway.port) for _ in range(20)]
        for each in late:
            each.socket.sendall(frame(Key.SASL_AUTHENTICATE, b"\0\0\0\1" + SECRET))
            each.socket.close()
        with RawClient(gateway.port) as patient:
            patient.socket.sendall(frame(Key.SASL_AUTHENTICATE, b"\0\0\0\1" + SECRET))
            while len(gateway.site._logins._waiters or ()) < len(late) + 1:
                assert not users.asked.acquire(timeout=0.001)
            users.go.set()
            assert patient.frame()[1].number("I") == 1
        assert users.count == 3
        for each in busy:
            each.socket.close()
