"""The agent's file, in TOML: the keys of `agent_keys`, and rules for streams as `[[streams]]`.

bucket = "tier"
flush = "60s"

[[streams]]                 # the first that matches decides
vhost = "test.*"
tier = false
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldstream.cli.agent_keys import keys, plain_names, unknown_key
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.agent.selection import Selection, StreamRule

#: Where the package has it.
INSTALLED = Path("/etc/coldstream/agent.toml")
_RULES = "streams"
_MAX_FILE = 2**20


@dataclass(frozen=True, slots=True)
class AgentFile:
    """What a file says.

    Attributes:
        path: of it; None for no file.
        values: by key.
        rules: tables of `[[streams]]`, checked.
    """

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Mapping[str, Any], ...] = ()

    def selection(self) -> Selection:
        """The rules.

        Raises:
            InvalidInputError: a pattern is none; names file and rule.
        """
        from coldstream.agent.selection import Selection

        made = []
        for number, table in enumerate(self.rules, 1):
            try:
                made.append(_made(table))
            except InvalidInputError as exc:
                trouble = f"rule {number} of [[{_RULES}]]: {exc.reason}"
                raise InvalidInputError(trouble, key=str(self.path)) from exc
        return Selection(tuple(made))


def _made(table: Mapping[str, Any]) -> StreamRule:
    from coldstream.agent.selection import StreamRule

    return StreamRule(**table)


def read_file(path: Path) -> AgentFile:
    """Read a file and check each of its keys.

    Raises:
        InvalidInputError: it cannot be read, is no TOML, or has a key that is unknown or of the
            wrong type; names the file and the key.
    """
    try:
        content = _parsed(path)
        rules = content.pop(_RULES, [])
        content = plain_names(content)
        for name in content:
            if name not in keys():
                raise InvalidInputError(unknown_key(name, [*keys(), _RULES]))
        values = {name: keys()[name].read(raw) for name, raw in content.items()}
        read = AgentFile(path, values, _rules(rules))
    except InvalidInputError as exc:
        exc.located(key=str(path))
        raise
    read.selection()
    return read


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            body = file.read(_MAX_FILE + 1)
    except OSError as exc:
        raise InvalidInputError(f"the file cannot be read: {exc.strerror or exc}") from exc
    if len(body) > _MAX_FILE:
        raise InvalidInputError(f"the file has more than {_MAX_FILE} bytes")
    try:
        return tomllib.loads(body.decode())
    except UnicodeDecodeError as exc:
        raise InvalidInputError(f"the file is not UTF-8 at byte {exc.start}") from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(f"the file is not TOML: {exc}") from exc


def _rules(raw: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(raw, list) or not all(isinstance(each, dict) for each in raw):
        raise InvalidInputError(f"{_RULES} must be tables, each headed [[{_RULES}]]")
    return tuple(_rule(number, table) for number, table in enumerate(raw, 1))


def _rule(number: int, table: Mapping[str, object]) -> Mapping[str, Any]:
    read, where = {}, f" in rule {number} of [[{_RULES}]]"
    try:
        table = plain_names(table)
    except InvalidInputError as exc:
        raise InvalidInputError(f"{exc.reason}{where}") from exc
    for name, raw in table.items():
        if name not in RULE_KEYS:
            raise InvalidInputError(unknown_key(name, list(RULE_KEYS), where))
        try:
            read[name] = RULE_KEYS[name](name, raw)
        except InvalidInputError as exc:
            raise InvalidInputError(f"{exc.reason}{where}") from exc
    return read


def _pattern(name: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw:
        raise InvalidInputError(f"{name} must be a pattern of the whole name, as a string")
    return raw


def _flag(name: str, raw: object) -> bool:
    if not isinstance(raw, bool):
        raise InvalidInputError(f"{name} must be true or false")
    return raw


def _as_option(name: str, raw: object) -> Any:
    return keys()[name].read(raw)


#: What a rule may say, and what reads it.
RULE_KEYS: Mapping[str, Callable[[str, object], Any]] = {
    "vhost": _pattern,
    "name": _pattern,
    "tier": _flag,
    "flush": _as_option,
    "fragment_size": _as_option,
    "upload_tail": _flag,
}
