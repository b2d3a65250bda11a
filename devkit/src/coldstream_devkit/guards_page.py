"""docs/reference/guards.md: which guards can be taken out, and what notices.

python -m coldstream_devkit.guards_page > docs/reference/guards.md
"""

from __future__ import annotations

import json
import sys

from coldstream_devkit.simulation.mutants import MUTANTS, Mutant
from coldstream_devkit.simulation.run import CAUGHT

#: For what is left to other tests: their files, from the checkout's root; none if nothing notices.
LEFT_TO_TESTS = CAUGHT.with_name("left_to_tests.json")

_INTRODUCTION = """\
# Guards taken out

This page is generated: `python -m coldstream_devkit.guards_page > docs/reference/guards.md`.

Each is a rule of the product that can be taken out alone (`make mutants`), and what notices then.
[Why we believe it](../architecture/correctness.md) says how. A seed is the one that caught it when
`make mutants RECORD=1` was last run; the simulator has to find one within the number behind it.
Whatever is left to tests fails there: `COLDSTREAM_MUTANT=NAME pytest FILE`.

{count} guards; the simulator notices {by_seed}.

| guard | rule | noticed by |
|---|---|---|
"""


def render() -> str:
    """The whole page."""
    by_seed = sum(bool(mutant.seeds) for mutant in MUTANTS.values())
    seeds, tests = json.loads(CAUGHT.read_text()), json.loads(LEFT_TO_TESTS.read_text())
    return _INTRODUCTION.format(count=len(MUTANTS), by_seed=by_seed) + "".join(
        f"| {name} | {mutant.guard} | {_noticed(mutant, seeds.get(name), tests.get(name, []))} |\n"
        for name, mutant in sorted(MUTANTS.items())
    )


def _noticed(mutant: Mutant, seed: int | None, tests: list[str]) -> str:
    if mutant.seeds is None:
        return ", ".join(f"`{each}`" for each in tests) or "nothing: other guards make up for it"
    if mutant.seeds == 0:
        return "nothing, and must not be: other guards make up for it"
    found = f"seed {seed:,}" if seed is not None else "simulator"
    return f"{found} (within {mutant.seeds:,})"


if __name__ == "__main__":
    sys.stdout.write(render())
