"""Users and rights as the broker has them, asked of its management API.

At each login, and now and then of those who are connected: what changes there holds for them, too.

The broker's own word on a user is his password's hash and, for each virtual host, the pattern of
what he may read. Whoever asks for those needs the tag `administrator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import re2

from coldstream.broker.management import Management
from coldstream.errors import NotFoundError, UnavailableError
from coldstream.gateway import passwords
from coldstream.gateway.users import Rights

_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class BrokerRights:
    """The patterns of what may be read. As the broker's, they match anywhere.

    Attributes:
        read: by virtual host.
        password: of the user, as it is stored.
    """

    read: Mapping[str, str]
    password: str = field(default="", repr=False)

    def may_enter(self, vhost: str) -> bool:
        """Where the user has any rights."""
        return vhost in self.read

    def may_read(self, vhost: str, name: str) -> bool:
        """As the broker decides it; a pattern that RE2 does not know permits nothing."""
        pattern = self.read.get(vhost, "")
        if pattern in ("", "^$"):
            return False
        try:
            return re2.search(pattern, name) is not None
        except re2.error:
            return False


@dataclass(slots=True)
class BrokerUsers:
    """The users of a broker.

    Attributes:
        management: its API, as an administrator.
        others: of other nodes of the cluster, asked where that one does not answer.
    """

    management: Management
    others: Sequence[Management] = ()
    _first: Management = field(init=False)  # asked first: it has answered last

    def __post_init__(self) -> None:
        self._first = self.management

    def log_in(self, user: str, password: str) -> Rights | None:
        """As `Users` says; two requests."""
        return self._found(user, lambda stored: passwords.holds(stored, password))

    def known(self, user: str) -> Rights | None:
        """As `Users` says; two requests."""
        return self._found(user, lambda _: True)

    def _found(self, user: str, wanted: Callable[[str], bool]) -> Rights | None:
        if not 0 < len(user) <= _MAX_NAME:
            return None
        path = f"/api/users/{quote(user, safe='')}"
        try:
            stored = _password(self._get(path))
            if not stored or not wanted(stored):
                return None
            rows = self._get(f"{path}/permissions")
        except NotFoundError:
            return None
        if not isinstance(rows, list):
            raise UnavailableError("the management API does not answer as a broker does")
        read = {
            str(row.get("vhost")): str(row.get("read", "")) for row in rows if isinstance(row, dict)
        }
        return BrokerRights(read, stored)

    def _get(self, path: str) -> Any:
        faults = []
        for each in dict.fromkeys((self._first, self.management, *self.others)):
            try:
                answer = each.get(path)
            except UnavailableError as exc:
                faults.append(exc)
                continue
            self._first = each
            return answer
        raise faults[0]


def _password(told: Any) -> str:
    """The stored password of a user; "" if he has none that could be checked."""
    if not isinstance(told, dict):
        return ""
    algorithm, secret = str(told.get("hashing_algorithm")), str(told.get("password_hash"))
    return passwords.of_broker(algorithm, secret)
