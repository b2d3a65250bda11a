"""docs/reference/agent.md: every key of the agent's file, from the options themselves.

python -m coldstream_devkit.agent_reference > docs/reference/agent.md
"""

from __future__ import annotations

import sys

from coldstream.agent.selection import TIERED
from coldstream.cli.agent_config import shown
from coldstream.cli.agent_file import INSTALLED, RULE_KEYS
from coldstream.cli.agent_keys import LIVE, Key, keys
from coldstream.cli.agent_options import REQUIRED

_INTRODUCTION = f"""\
# The agent's settings

This page is generated: `python -m coldstream_devkit.agent_reference > docs/reference/agent.md`.

`coldstream agent run --config FILE` reads a TOML file whose keys are the options of the command,
with `_` for `-`. **Flags win over the environment, that over the file, that over the defaults.**
`coldstream agent config --show [--json]` prints every key, its value and who has said it; passwords
in URIs are hidden. `coldstream agent config` alone checks, and sends nothing. `agent config` reads
`{INSTALLED}` if there is one and no other file is named; `agent run` reads only what is named.

A key that does not exist, a value of another type and a file that is no TOML are errors that name
the file and the key. An option of two names is a key of two names, of which a file may have one.
`--once` and `--json` are about one run, and stay on the command line.
Credentials, region and endpoint come from the environment, as for every AWS SDK.

**SIGHUP** reads the file again, also where it comes while the agent starts. What is marked *live*
is taken over by the next look at the streams; of everything else that has changed the log says that
it needs a restart. A broken file changes nothing, and the log says why.

| key | takes | default | live | |
|---|---|---|---|---|
"""
_RULES = """\

## `[[streams]]`: which streams, and how

The first rule that matches decides, so order matters; a stream that none matches is tiered with the
settings above. A rule matches if both of its patterns do; a pattern that is left out is about every
name. Patterns are regular expressions of RE2 over the whole name. All rules are *live*: a stream
that a rule leaves alone from now on is followed no longer, and what of it is in the remote tier
stays there.

A directory's name does not say for certain what its queue is called. As long as the name is not
settled (by the broker's management API, or by `names`), a rule that asks for a name decides
nothing, nor does any rule behind it: **the stream waits, and nothing of it is uploaded.**

| key | takes | default | |
|---|---|---|---|
"""
_RULE = {
    "vhost": ("a pattern", "every virtual host", "Of the virtual host's name."),
    "name": ("a pattern", "every queue", "Of the queue's name."),
    "tier": ("true or false", "", "Whether the stream goes to the remote tier."),
    "flush": ("", "the agent's", "As the key of the agent."),
    "fragment_size": ("", "the agent's", "As the key of the agent; must fit its `memory`."),
    "upload_tail": (
        "true or false",
        "",
        "Of a stream that the broker deletes: whether what is still held of it is uploaded.",
    ),
}


def render() -> str:
    """The whole page."""
    rows = [_row(key) for key in keys().values()]
    rules = []
    for name in RULE_KEYS:
        takes, default, about = _RULE[name]
        takes = takes or keys()[name].takes
        default = default or f"`{_toml(getattr(TIERED, name))}`"
        rules.append(f"| `{name}` | {takes} | {default} | {about} |")
    return _INTRODUCTION + "\n".join(rows) + "\n" + _RULES + "\n".join(rules) + "\n"


def _row(key: Key) -> str:
    value = shown(key, key.default)
    default = "" if value is None else f"`{_toml(value)}`"
    text = key.option.help or ""
    if text.endswith(REQUIRED):
        default, text = "required", text.removesuffix(REQUIRED)
    about = " ".join(text.split()).replace("|", "\\|")
    environment = f" `{key.environment}`" if key.environment else ""
    live = "live" if key.name in LIVE else ""
    names = ", ".join(f"`{each}`" for each in (key.name, *key.aliases))
    return f"| {names} | {key.takes} | {default} | {live} | {about}{environment} |"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    sys.stdout.write(render())
