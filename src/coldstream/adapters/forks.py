"""What a forked process takes over from the one that it was forked from, and must not use.

A fork has none of obstore's threads: a request there waits for ever, in this store and any other.
So a process that was forked after obstore was used gets an error. boto3 has no such threads, but
both processes would share its idle connections, and one would read the other's answer: the fork
opens new ones.
"""

from __future__ import annotations

import os
from typing import Any

from coldstream.errors import InvalidInputError


class ForkedError(InvalidInputError):
    """S3 is asked in a process that was forked from one that had asked it before."""

    remedy = (
        "fork before the first read, or start processes otherwise:"
        " multiprocessing.get_context('spawn')"
    )


class _Threads:
    """Those of obstore, which a process has once."""

    used = dead = False


def check_not_forked() -> None:
    """Say that obstore is about to be used.

    Raises:
        ForkedError: its threads were left behind.
    """
    if _Threads.dead:
        raise ForkedError("this process was forked from one that had read from S3 already")
    _Threads.used = True


def _forked() -> None:
    _Threads.dead = _Threads.used


os.register_at_fork(after_in_child=_forked)


def own_connections(client: Any) -> Any:
    """See that a boto3 client uses no connection that another process has, too; the client."""
    owner = os.getpid()

    def look(**_: Any) -> None:
        nonlocal owner
        if owner != os.getpid():
            owner = os.getpid()
            client.close()  # only what is open; it opens others

    client.meta.events.register("before-call", look)
    return client
