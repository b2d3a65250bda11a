"""What a page of ours carries: style, script, and the two libraries, which nobody fetches.

`page.css` and `page.js` are ours; `LICENSES.txt` says what the others are and where they are from.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

_LIBRARIES = (
    "chart-4.6.1.min.js",
    "tablesort-5.7.1.min.js",
    "tablesort.number-5.7.1.min.js",
    "page.js",
)


@cache
def style() -> str:
    """The style sheet."""
    return _text("page.css")


@cache
def scripts() -> tuple[str, ...]:
    """The scripts, in the order in which they run; none has the end of a script in it."""
    return tuple(_text(name) for name in _LIBRARIES)


@cache
def policy() -> str:
    """What a browser is told that the page may do: run these scripts, and fetch nothing.

    So text of clients that got into the page in spite of all would still run nowhere (W3C, Content
    Security Policy Level 3).
    """
    digests = (
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts()
    )
    allowed = " ".join(f"'sha256-{each}'" for each in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"


def data(value: Any) -> str:
    """A value as JSON that can stand within a script element, whatever text is in it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
