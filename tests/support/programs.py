"""Programs that some tests need and that not every machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: Set where nothing may be left out, as `.ci/run` does.
EVERYTHING = "COLDSTREAM_TEST_EVERYTHING"


def program(name: str, package: str) -> Path:
    """Where a program is; a test that needs it is skipped where it is not, and fails in CI.

    Args:
        name: the program's.
        package: Debian's that has it.
    """
    found = shutil.which(name)
    if found is None:
        why = f"{name} is not installed: apt-get install {package}"
        if os.environ.get(EVERYTHING):
            pytest.fail(f"{why}; {EVERYTHING} is set, so nothing is skipped")
        pytest.skip(why)
    return Path(found)
