"""Passwords as a file or a broker keeps them; no I/O but random numbers from the caller.

{scrypt}16384$8$1$SALT$HASH       RFC 7914, base64; `coldstream gateway hash-password` makes it
{rabbit_password_hashing_sha256}BASE64, {rabbit_password_hashing_sha512}BASE64
                                  four bytes of salt, then the hash of salt and password, as
                                  `rabbitmqctl hash_password` and a broker's definitions have it
anything else                     the password itself
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping

from coldstream.errors import InvalidInputError

_SCRYPT = "{scrypt}"
_COST, _BLOCK, _LANES, _SALT, _HASH = 2**14, 8, 1, 16, 64
#: A line of a file must not make a login take a minute or a gigabyte.
_MAX_COST, _MAX_BLOCK, _MAX_LANES = 2**17, 16, 4
_RABBIT_SALT = 4
_RABBIT: Mapping[str, Callable[[bytes], bytes]] = {
    "rabbit_password_hashing_sha256": lambda data: hashlib.sha256(data).digest(),
    "rabbit_password_hashing_sha512": lambda data: hashlib.sha512(data).digest(),
}
#: As long as any password is that somebody types; more would only cost time.
MAX_PASSWORD = 4096


def hashed(password: str, salt: bytes) -> str:
    """A password as a users file has it; `salt` is 16 random bytes.

    Raises:
        InvalidInputError: it is empty or too long.
    """
    if not 0 < len(password) <= MAX_PASSWORD:
        raise InvalidInputError(f"a password has 1 to {MAX_PASSWORD} characters")
    found = _scrypt(password, salt, _COST, _BLOCK, _LANES)
    coded = "$".join(base64.b64encode(each).decode() for each in (salt, found))
    return f"{_SCRYPT}{_COST}${_BLOCK}${_LANES}${coded}"


def check_form(stored: str) -> None:
    """See that a stored password is one.

    Raises:
        InvalidInputError: it is empty, or begins like a hash and is none.
    """
    if not stored:
        raise InvalidInputError("the password is empty")
    if not stored.startswith("{"):
        return
    if _parts(stored) is None and _rabbit(stored) is None:
        raise InvalidInputError(
            "a password that begins with { must be a hash: {scrypt}..., or"
            " {rabbit_password_hashing_sha256}..."
        )


def holds(stored: str, password: str) -> bool:
    """Whether a password is the stored one; takes as long for a wrong one as for the right one."""
    if len(password) > MAX_PASSWORD:
        return False
    if not stored.startswith("{"):
        return hmac.compare_digest(stored.encode(), password.encode())
    parts = _parts(stored)
    if parts is not None:
        *cost, salt, expected = parts
        return hmac.compare_digest(_scrypt(password, salt, *cost), expected)
    rabbit = _rabbit(stored)
    if rabbit is None:
        return False
    digest, salt, expected = rabbit
    return hmac.compare_digest(digest(salt + password.encode()), expected)


def cost(stored: str) -> int:
    """What checking a password costs, in blocks of scrypt; 0 for what costs next to nothing."""
    parts = _parts(stored)
    return 0 if parts is None else parts[0] * parts[1] * parts[2]


def decoy(stored: Iterable[str]) -> str:
    """A hash of no password, as costly to check as the costliest of these; "" if none costs."""
    costliest = max(stored, key=cost, default="")
    parts = _parts(costliest)
    if parts is None:
        return ""
    coded = "$".join(base64.b64encode(bytes(size)).decode() for size in (_SALT, _HASH))
    return f"{_SCRYPT}{parts[0]}${parts[1]}${parts[2]}${coded}"


def of_broker(algorithm: str, password_hash: str) -> str:
    """The stored form of what the management API tells of a user; "" if no password is his."""
    stored = f"{{{algorithm}}}{password_hash}"
    return stored if _rabbit(stored) is not None else ""


def _scrypt(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    most = 132 * cost * block + 2**20
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=most)


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes] | None:
    if not stored.startswith(_SCRYPT):
        return None
    try:
        cost, block, lanes, salt, expected = stored.removeprefix(_SCRYPT).split("$")
        numbers = int(cost), int(block), int(lanes)
        raw = [base64.b64decode(each, validate=True) for each in (salt, expected)]
    except (ValueError, binascii.Error):
        return None
    bounded = all(
        0 < each <= most
        for each, most in zip(numbers, (_MAX_COST, _MAX_BLOCK, _MAX_LANES), strict=True)
    )
    power = numbers[0] > 1 and numbers[0] & (numbers[0] - 1) == 0
    if not bounded or not power or len(raw[0]) < _SALT // 2 or len(raw[1]) != _HASH:
        return None
    return *numbers, raw[0], raw[1]


def _rabbit(stored: str) -> tuple[Callable[[bytes], bytes], bytes, bytes] | None:
    name, closed, coded = stored[1:].partition("}")
    digest = _RABBIT.get(name)
    if not closed or digest is None:
        return None
    try:
        raw = base64.b64decode(coded, validate=True)
    except (ValueError, binascii.Error):
        return None
    if len(raw) != _RABBIT_SALT + len(digest(b"")):
        return None
    return digest, raw[:_RABBIT_SALT], raw[_RABBIT_SALT:]
