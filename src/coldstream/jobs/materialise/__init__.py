"""Streams into tables, exactly once: `rules`, `ranges` and `transform` decide, `run` acts."""
