"""The command line.

Python imports this before anything else of it, so Ctrl-C while the rest is imported ends here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType


def _quiet(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """A person who ends a command that has not begun needs no traceback."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("coldstream: interrupted\n")
    else:
        sys.__excepthook__(kind, error, where)


# Only where this is the program: `python -m` has not put the file's name there yet.
if Path(sys.argv[0]).name in ("coldstream", "-m"):
    sys.excepthook = _quiet
