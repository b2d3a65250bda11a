"""What `coldstream agent config --show` prints: every key, its value, and who has said it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from coldstream.cli.agent_keys import Key, keys
from coldstream.cli.agent_setup import Setup
from coldstream.cli.output import note, print_json, print_table
from coldstream.errors import InvalidInputError

_URIS = frozenset({"stream_uri", "management_uri"})
_USER = re.compile(
    r"(?P<user>[A-Za-z][A-Za-z0-9+.-]*://[^:/@?#]*):.*@(?P<place>[^:/@?#]*(?::\d+)?)/?"
)
_NOBODY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^:/@?#]+@)?[^:/@?#]*(?::\d+)?/?")
_HIDDEN = "***"


def show_setup(setup: Setup) -> None:
    """Print all keys on stdout, and what is missing, if anything, on stderr."""
    rows = [
        {"key": key.name, "value": shown(key, setup.value(key.name)), "origin": setup.origin(key)}
        for key in keys().values()
    ]
    if setup.options.as_json:
        path = setup.file.path
        streams = [dict(each) for each in setup.file.rules]
        print_json({"file": path and str(path), "keys": rows, "streams": streams})
    else:
        print_table([{**row, "value": _written(row["value"])} for row in rows], _COLUMNS)
        for number, rule in enumerate(setup.file.rules, 1):
            words = ", ".join(f"{name} = {_toml(value)}" for name, value in rule.items())
            sys.stdout.write(f"streams {number}\t{words}\n")
    try:
        setup.options.check()
    except InvalidInputError as exc:
        note(f"not enough to run: {exc}")


_COLUMNS = ("key", "value", "origin")


def shown(key: Key, value: Any) -> Any:
    """A value as it may be seen by anybody, in the units of the options; None for nothing."""
    if value in ("", None):
        return None
    if key.name in _URIS:
        return without_password(value)
    if key.option.metavar == "DURATION":
        return f"{value}s"
    if key.option.metavar == "SIZE":
        return _size(value)
    return str(value) if isinstance(value, Path) else value


def without_password(uri: str) -> str:
    """A URI with `***` for its password; only `***` for one that cannot be read with certainty.

    A password with a `/` or an `@` that nobody has escaped still is a password.
    """
    if _NOBODY.fullmatch(uri):
        return uri
    match = _USER.fullmatch(uri)
    return f"{match['user']}:{_HIDDEN}@{match['place']}" if match else _HIDDEN


def _size(value: int) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value and value % 1024**power == 0:
            return f"{value >> 10 * power}{unit}"
    return str(value)


def _written(value: Any) -> Any:
    return _toml(value) if isinstance(value, bool) else value


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
