"""Ctrl-C for programs that tests start."""

from __future__ import annotations

import signal


def heeds_ctrl_c() -> None:
    """In a child before its program: a suite that a shell runs in the background ignores SIGINT,
    and so would whatever it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
