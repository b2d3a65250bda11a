"""The keys of the agent's file: the options of `coldstream agent run`, with `_` for `-`.

They are read off the options themselves, so that a file can say all that a command line can, with
the same limits; only what is about a single run is left to the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from coldstream.cli.agent_options import AgentOptions
from coldstream.cli.options import Where
from coldstream.errors import InvalidInputError

#: Options that are about one run.
ONLY_ON_THE_COMMAND_LINE = frozenset({"once", "as_json"})
#: What a running agent takes over when its file is read again; all else needs a restart.
LIVE = frozenset({"flush", "fragment_size", "upload_rate"})


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        name: of it, and of the field of the options.
        kind: type of its value.
        option: that says the same on a command line.
        default: value if nobody says another.
    """

    name: str
    kind: type[Any]
    option: OptionInfo
    default: Any

    @property
    def flag(self) -> str:
        """The option's first name."""
        named = self._flags
        return named[0] if named else f"--{self.name.replace('_', '-')}"

    @property
    def aliases(self) -> tuple[str, ...]:
        """What a file may call it, too: the option's further names."""
        return tuple(each.removeprefix("--").replace("-", "_") for each in self._flags[1:])

    @property
    def _flags(self) -> list[str]:
        # In an annotation, typer keeps the first name where a default would stand.
        names = (self.option.default, *(self.option.param_decls or ()))
        return [each for each in names if isinstance(each, str) and each.startswith("--")]

    @property
    def environment(self) -> str:
        """The variable that says the same; "" if there is none."""
        variable = self.option.envvar
        return variable if isinstance(variable, str) else ""

    @property
    def takes(self) -> str:
        """What a file may give, in words."""
        if self.option.metavar == "SIZE":
            return 'a size such as "64MiB", or bytes'
        if self.option.metavar == "DURATION":
            return 'a duration such as "60s", or seconds'
        if issubclass(self.kind, StrEnum):
            return " or ".join(f'"{each}"' for each in self.kind)
        return {bool: "true or false", int: "a whole number"}.get(self.kind, "a string")

    def read(self, raw: object) -> Any:
        """The value that a file gives.

        Raises:
            InvalidInputError: it is of another type, or outside its limits. The message repeats no
                string, which may be a URI with a password.
        """
        if self.option.parser is not None:
            return self._quantity(raw)
        if issubclass(self.kind, StrEnum):
            if raw in list(self.kind):
                return self.kind(str(raw))
        elif self.kind is bool or self.kind is int:
            if type(raw) is self.kind:
                return self._limited(raw)
        elif isinstance(raw, str):
            if (
                "\0" in raw
            ):  # which no path, name or URI can have; a flag or variable cannot, either
                raise InvalidInputError(f"{self.name} has a NUL in it")
            return Path(raw) if self.kind is Path else raw
        raise InvalidInputError(f"{self.name} must be {self.takes}, not {_type_of(raw)}")

    def _quantity(self, raw: object) -> Any:
        if not isinstance(raw, str | int) or isinstance(raw, bool):
            raise InvalidInputError(f"{self.name} must be {self.takes}, not {_type_of(raw)}")
        assert self.option.parser is not None
        try:
            return self.option.parser(raw)  # type: ignore[arg-type]  # ours take numbers too
        except typer.BadParameter as exc:
            raise InvalidInputError(f"{self.name} {exc.message}") from exc

    def _limited(self, value: Any) -> Any:
        least, most = self.option.min, self.option.max
        if (least is not None and value < least) or (most is not None and value > most):
            raise InvalidInputError(f"{self.name} must be from {least} to {most}, not {value}")
        return value


def _type_of(raw: object) -> str:
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number with a point",
        str: "this string",
        list: "a list",
        dict: "a table",
    }
    return words.get(type(raw), "a date or time")


@cache
def keys() -> Mapping[str, Key]:
    """All keys by name, those of the remote tier first."""
    found = {}
    for options in (Where, AgentOptions):
        hints = get_type_hints(options, include_extras=True)
        for each in fields(options):
            if each.name not in ONLY_ON_THE_COMMAND_LINE:
                found[each.name] = _key(each, hints[each.name])
    return found


def plain_names(table: Mapping[str, object]) -> dict[str, object]:
    """A table of a file, with the first name of each key.

    Raises:
        InvalidInputError: it has two names of one key.
    """
    first = {alias: key.name for key in keys().values() for alias in key.aliases}
    found: dict[str, object] = {}
    for given, raw in table.items():
        name = first.get(given, given)
        if name in found:
            alias = ", ".join(keys()[name].aliases)
            raise InvalidInputError(f"{name} and {alias} are the same key; give one of the two")
        found[name] = raw
    return found


def _key(field: Field[Any], hint: Any) -> Key:
    annotation, *more = get_args(hint)
    option = next(each for each in more if isinstance(each, OptionInfo))
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    kind = kinds[0] if get_origin(annotation) is not None or kinds else annotation
    return Key(field.name, kind, option, None if field.default is MISSING else field.default)


def unknown_key(name: str, known: list[str], where: str = "") -> str:
    """What to say of a key that does not exist, with the one that was probably meant."""
    plain = name.replace("-", "_").lower()
    if not where and plain in (*ONLY_ON_THE_COMMAND_LINE, "json"):
        return f"{name} is about one run, and belongs on the command line"
    further = [alias for key in keys().values() if key.name in known for alias in key.aliases]
    near = get_close_matches(plain, [*known, *further], 1)
    meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
    return f"there is no key {name[:80]!r}{where}{meant}"
