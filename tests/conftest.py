"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import settings

from coldstream_devkit.simulation.edits import applied
from coldstream_devkit.simulation.mutants import MUTANTS

# A time limit for an example is a timed assertion: it fails where the machine is busy.
settings.register_profile("coldstream", deadline=None)
settings.load_profile("coldstream")

# Which test misses a guard? COLDSTREAM_MUTANT=NAME pytest ...: it must fail.
if mutant := os.environ.get("COLDSTREAM_MUTANT"):
    _without = applied(MUTANTS[mutant].patches())
    _without.__enter__()
