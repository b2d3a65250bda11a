"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# A time limit for an example is a timed assertion: it fails where the machine is busy.
settings.register_profile("coldstream", deadline=None)
settings.load_profile("coldstream")
