"""What all clients of a gateway share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from coldstream.errors import ColdstreamError
from coldstream.gateway.metrics import GatewayMetrics
from coldstream.gateway.offsets import Offsets
from coldstream.gateway.streams import Streams
from coldstream.gateway.users import FileUsers, Rights, Users

#: Passwords are checked one after the other: a hash costs a processor a twentieth of a second.
_LOGINS_AT_ONCE = 2


class Guest(Protocol):
    """A client, as far as its rights go."""

    @property
    def user(self) -> str:
        """That has logged in."""
        ...

    @property
    def rights(self) -> Rights | None:
        """What he may do; None before the login, and when he is being hung up on."""
        ...

    def changed(self, rights: Rights | None) -> None:
        """What he may do by now; None if he would have to log in anew."""
        ...


@dataclass(slots=True)
class Site:
    """One gateway.

    Attributes:
        streams: that can be read.
        offsets: of consumers.
        users: who may log in.
        metrics: counted as it goes.
        pool: threads for what blocks.
        say: writes a sentence to the log.
        version: of coldstream.
        host: that clients are told to connect to; "" for the one that they came by.
        port: the same; 0 for the one that they came by.
        subscriptions: of all clients together, at the most: each may hold a range in memory.
        penalty_seconds: after which a wrong password is answered, so that nobody tries thousands.
        guests: the clients, which are told when their rights have changed.
        rights_seconds: users that somebody else keeps are asked for as often, for those who are
            connected.
        leaving: what clients that leave still do; the end waits for it.
    """

    streams: Streams
    offsets: Offsets
    users: Users
    metrics: GatewayMetrics
    pool: Executor
    say: Callable[[str], None]
    version: str
    host: str = ""
    port: int = 0
    subscriptions: int = 1024
    penalty_seconds: float = 1.0
    rights_seconds: float = 30.0
    guests: set[Guest] = field(default_factory=set)
    leaving: set[asyncio.Task[None]] = field(default_factory=set)
    _asked_for: str = ""
    _logins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOGINS_AT_ONCE))

    def advertised(self, local: tuple[str, int]) -> tuple[str, int]:
        """What a client that came by this address is told."""
        return self.host or local[0], self.port or local[1]

    async def log_in(self, user: str, password: str, waits: Callable[[], bool]) -> Rights | None:
        """As `Users` says; `waits` says whether the client still does when its turn has come.

        Raises:
            ConnectionError: it does not.
        """
        async with self._logins:
            if not waits():  # else nobody would ever be in time, once clients give up waiting
                raise ConnectionResetError("the client has given up")
            loop = asyncio.get_running_loop()
            while True:
                users = self.users
                found = await loop.run_in_executor(self.pool, users.log_in, user, password)
                if users is self.users:  # else they were replaced meanwhile
                    return found

    def leave(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Have something done for a client that leaves, though the gateway ends meanwhile."""
        task = asyncio.create_task(work)
        self.leaving.add(task)
        task.add_done_callback(self.leaving.discard)
        return task

    def replace_users(self, users: FileUsers) -> None:
        """The file says something else by now, and it holds for those who are here, too."""
        self.users = users
        for guest in list(self.guests):
            _judge(guest, users.known(guest.user))

    async def keep_rights(self) -> None:
        """Have what changes at the broker hold for those who are here, too; never ends.

        Whose rights nobody can say just now keeps those that he has.
        """
        unsaid = False
        while not isinstance(self.users, FileUsers):  # the file is read again when it is told
            await asyncio.sleep(self.rights_seconds)
            try:
                await self.look_again()
            except ColdstreamError as error:
                if not unsaid:
                    self.say(f"the rights of who is connected stay as they are: {error}")
                unsaid = True
            else:
                unsaid = False

    async def look_again(self) -> None:
        """Ask once for each user that is connected."""
        loop, users = asyncio.get_running_loop(), self.users
        connected = {guest.user for guest in self.guests if guest.rights is not None}
        # Who got no answer comes last the next time, lest nobody behind him is ever asked for.
        for user in sorted(connected, key=lambda each: (each <= self._asked_for, each)):
            self._asked_for = user
            async with self._logins:
                # Who logs in while this is asked may know more already.
                here = {guest: guest.rights for guest in self.guests if guest.user == user}
                rights = await loop.run_in_executor(self.pool, users.known, user)
            for guest, before in here.items():
                if guest.rights is before:
                    _judge(guest, rights)


def _judge(guest: Guest, rights: Rights | None) -> None:
    """Tell a client what its user may do; nothing under a password that is another one by now."""
    if guest.rights is not None:
        same = rights is not None and rights.password == guest.rights.password
        guest.changed(rights if same else None)
