"""Where each setting of an agent comes from, and what a file that is read again changes.

Flags win over the environment, that over the file, that over the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from coldstream.cli.agent_file import INSTALLED, AgentFile, read_file
from coldstream.cli.agent_keys import LIVE, Key, keys
from coldstream.cli.agent_options import AgentOptions
from coldstream.cli.options import Where

_FILE = "coldstream.agent_file"


class Said(StrEnum):
    """Who has said a value."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


#: By the names that the command line's own library gives them.
_SAID = {
    "COMMANDLINE": Said.FLAG,
    "ENVIRONMENT": Said.ENVIRONMENT,
    "DEFAULT_MAP": Said.FILE,
    "DEFAULT": Said.DEFAULT,
}


@dataclass(frozen=True, slots=True)
class Setup:
    """All settings of an agent.

    Attributes:
        options: of the command.
        where: of the remote tier.
        file: that was read; an empty one for none.
        said: by key, who has said its value.
    """

    options: AgentOptions
    where: Where
    file: AgentFile
    said: Mapping[str, Said]

    def value(self, key: str) -> Any:
        """What is in force."""
        part = self.where if key in {each.name for each in fields(Where)} else self.options
        return getattr(part, key)

    def origin(self, key: Key) -> str:
        """Who has said it, in words that lead to the place."""
        said = self.said[key.name]
        if said is Said.FLAG:
            return f"flag {key.flag}"
        if said is Said.ENVIRONMENT:
            return f"environment {key.environment}"
        return f"file {self.file.path}" if said is Said.FILE else "default"


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What becomes of a running agent whose file is another one.

    Attributes:
        setup: with what is taken over.
        taken: keys that are taken over.
        waiting: keys whose new value needs a restart.
    """

    setup: Setup
    taken: tuple[str, ...]
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        taken = f"taken over: {', '.join(self.taken)}" if self.taken else "nothing to take over"
        waiting = f"; only after a restart: {', '.join(self.waiting)}" if self.waiting else ""
        return f"{self.setup.file.path} was read again, {taken}{waiting}"


def reloaded(running: Setup, file: AgentFile) -> Reloaded:
    """What of a file that was read again a running agent takes over."""
    different = {}
    for name, key in keys().items():
        if running.said[name] in (Said.FLAG, Said.ENVIRONMENT):
            continue
        value = file.values.get(name, key.default)
        if value != running.value(name):
            different[name] = value
    live = {name: value for name, value in different.items() if name in LIVE}
    taken = sorted(live) + (["streams"] if file.rules != running.file.rules else [])
    said = {
        name: who
        if who in (Said.FLAG, Said.ENVIRONMENT)
        else (Said.FILE if name in file.values else Said.DEFAULT)
        for name, who in running.said.items()
    }
    setup = Setup(replace(running.options, **live), running.where, file, said)
    return Reloaded(setup, tuple(taken), tuple(sorted(different.keys() - LIVE)))


def setup_of(context: typer.Context, options: AgentOptions, where: Where) -> Setup:
    """The settings of a command that has an option of `config_option`."""
    said = {}
    for name in keys():
        source = context.get_parameter_source(name)
        said[name] = _SAID[source.name] if source is not None else Said.DEFAULT
    return Setup(options, where, context.meta.get(_FILE, AgentFile()), said)


def _reading(installed: bool) -> Callable[[typer.Context, Path | None], Path | None]:
    def read(context: typer.Context, given: Path | None) -> Path | None:
        """Let the file stand behind flags and environment; options are read after this one."""
        path = given
        if path is None and installed and INSTALLED.exists():
            path = INSTALLED
        if path is None or context.resilient_parsing:
            return path
        file = read_file(path)
        context.meta[_FILE] = file
        context.default_map = {
            name: str(value) if isinstance(value, Path | StrEnum) else value
            for name, value in file.values.items()
        }
        return path

    return read


def _config_option(about: str, *, installed: bool) -> Any:
    return typer.Option(
        "--config", is_eager=True, callback=_reading(installed), help=about, show_default=False
    )


#: The file of `agent run`.
ConfigOption = Annotated[
    Path | None,
    _config_option(
        "TOML file with the same names; flags and environment win over it. Read again on SIGHUP.",
        installed=False,
    ),
]
#: The file of `agent config`.
InstalledConfigOption = Annotated[
    Path | None,
    _config_option(
        f"The file of `agent run`; {INSTALLED} if there is one and no other is given.",
        installed=True,
    ),
]
