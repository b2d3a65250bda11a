"""Who may log in, and which streams each may read.

    # user:password:regex of streams
    reports:{scrypt}16384$8$1$...:orders|invoices\\..*
    admin:secret:.*

The pattern (RE2) must match all of a stream's name: QUEUE for the queues of virtual host "/", and
VHOST/QUEUE for those of any other. A stream that has no queue, as in a copy of a bucket, goes by
the name of its directory. The first slash ends the virtual host: one in its own name is %2F, and a
percent sign %25; a queue of "/" with a slash in its name is %2F/QUEUE, so that no pattern for
another virtual host fits it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from coldstream.errors import InvalidInputError
from coldstream.gateway import passwords
from coldstream.plans.name_pattern import check_pattern, compiled

_MAX_FILE = 16 * 2**20
_MAX_PATTERN = 4096


class Rights(Protocol):
    """What one user may do."""

    @property
    def password(self) -> str:
        """As it is stored; who has logged in under another one would have to log in anew."""
        ...

    def may_enter(self, vhost: str) -> bool:
        """Whether he may open a virtual host."""
        ...

    def may_read(self, vhost: str, name: str) -> bool:
        """Whether he may read a stream: by its queue, or by its directory if it has none."""
        ...


class Users(Protocol):
    """Who may log in; called in a thread."""

    def log_in(self, user: str, password: str) -> Rights | None:
        """What the user may do; None if he is nobody, or his password another one.

        Raises:
            UnavailableError: nobody can say just now.
            PermissionDeniedError: the gateway itself may not ask.
        """
        ...

    def known(self, user: str) -> Rights | None:
        """What a user may do by now; None if he is nobody any more. Raises as `log_in`."""
        ...


@dataclass(frozen=True, slots=True)
class PatternRights:
    """Rights by a pattern of names.

    Attributes:
        pattern: of all of a name.
        password: of the user, as it is stored.
    """

    pattern: str
    password: str = field(default="", repr=False)

    def may_enter(self, vhost: str) -> bool:
        """Any: what matters is what is read in it."""
        del vhost
        return True

    def may_read(self, vhost: str, name: str) -> bool:
        """As `Rights` says."""
        return compiled(self.pattern).fullmatch(_full(vhost, name)) is not None


def _full(vhost: str, name: str) -> str:
    """A name that no other queue of any virtual host has."""
    if vhost == "/" and "/" not in name:
        return name
    return f"{vhost.replace('%', '%25').replace('/', '%2F')}/{name}"


@dataclass(frozen=True, slots=True)
class FileUsers:
    """The users of a file.

    Attributes:
        users: what each may do.
        decoy: nobody's password; as costly to check as the costliest of theirs.
    """

    users: Mapping[str, PatternRights]
    decoy: str = ""
    # Of passwords that were right, under a key that only this process has: hundreds of clients
    # that come back at once must not wait for as many costly hashes.
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _right: dict[str, bytes] = field(default_factory=dict, repr=False)

    def log_in(self, user: str, password: str) -> Rights | None:
        """As `Users` says; takes as long for a user that is not there as for any other."""
        rights = self.known(user)
        seen = hmac.digest(self._key, password.encode(), "sha256")
        if rights is not None and hmac.compare_digest(self._right.get(user, b""), seen):
            return rights
        stored = self.decoy if rights is None else rights.password
        right = passwords.holds(stored, password)
        if passwords.cost(stored) < passwords.cost(self.decoy):
            passwords.holds(self.decoy, password)
        if rights is None or not right:
            return None
        self._right[user] = seen
        return rights

    def known(self, user: str) -> Rights | None:
        """As `Users` says; raises nothing."""
        return self.users.get(user)


def read_users(path: Path) -> FileUsers:
    """The users that a file names.

    Raises:
        InvalidInputError: it cannot be read, or a line is none; names the line, not what is in it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        text = data.decode()
    except OSError as exc:
        raise InvalidInputError(f"cannot be read: {exc.strerror}", key=str(path)) from exc
    except UnicodeDecodeError as exc:
        raise InvalidInputError("is not UTF-8", key=str(path)) from exc
    if len(data) > _MAX_FILE:
        raise InvalidInputError(f"has more than {_MAX_FILE} bytes", key=str(path))
    try:
        return parse_users(text)
    except InvalidInputError as exc:
        exc.located(key=str(path))
        raise


def parse_users(text: str) -> FileUsers:
    """The users of a text; raises as `read_users`."""
    found: dict[str, PatternRights] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split(":", 2)
        if len(parts) < 3 or not parts[0] or not parts[2]:
            raise InvalidInputError(f"line {number} is not user:password:regex of streams")
        user, stored, pattern = parts
        if user in found:
            raise InvalidInputError(f"line {number} names {user!r} a second time")
        try:
            passwords.check_form(stored)
            if len(pattern) > _MAX_PATTERN:
                raise InvalidInputError(f"the pattern has more than {_MAX_PATTERN} characters")
            check_pattern(pattern)
        except InvalidInputError as exc:
            raise InvalidInputError(f"line {number}: {exc.reason}") from None
        found[user] = PatternRights(pattern, stored)
    if not found:
        raise InvalidInputError("names no user")
    return FileUsers(found, passwords.decoy(each.password for each in found.values()))
