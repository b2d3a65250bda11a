"""The server listens on 127.0.0.1 and nowhere else."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any

from .options import Options


def loopback_only(_: Options) -> None:
    """Refuse to bind any other interface, whichever part of MiniStack asks.

    AWS: does not arise. MiniStack: binds 0.0.0.0 by default, and some services open listeners of
    their own when first used. Our own socket is on loopback anyway; this is for the others.
    """
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.bind":
        return
    address = arguments[1]
    if not isinstance(address, tuple):  # a Unix socket
        return
    host = str(address[0])
    if host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise PermissionError(f"the embedded AWS listens on 127.0.0.1 only, not on {address}")
