"""A wrong time of day for one process and its children, as on a host whose clock was set wrong."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("wrong_clock.c")


@dataclass(frozen=True, slots=True)
class WrongClock:
    """By how much a clock is wrong, and what makes it so.

    Attributes:
        library: that is preloaded.
        seconds: by which the clock is ahead; negative: behind.
    """

    library: Path
    seconds: int

    def variables(self, library: Path) -> dict[str, str]:
        """The environment of a process that sees the library at this path."""
        return {"LD_PRELOAD": str(library), "COLDSTREAM_CLOCK": str(self.seconds)}


def build(directory: Path) -> Path | None:
    """Build the library into a directory; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "wrong_clock.so"
    words = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
    subprocess.run(words, check=True)
    return library
