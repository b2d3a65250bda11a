"""A wrong clock for one process: libfaketime, where it is installed (apt-get install libfaketime).

Only the time of day is wrong; monotonic clocks are right, as on a host whose clock was set wrong.
"""

from __future__ import annotations

from pathlib import Path

_LIBRARIES = ("/usr/lib", "*/faketime/libfaketimeMT.so.1")


def library() -> Path | None:
    """The library that is preloaded; None if it is not installed."""
    return next(Path(_LIBRARIES[0]).glob(_LIBRARIES[1]), None)


def variables(preloaded: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is wrong.

    Args:
        preloaded: the library, as the process sees it.
        seconds: by which its clock is ahead; negative: behind.
    """
    return {
        "LD_PRELOAD": str(preloaded),
        "FAKETIME": f"{seconds:+d}",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
