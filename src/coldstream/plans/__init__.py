"""Decisions as pure functions: facts in, a plan or a refusal out. No I/O, no clock, no SDK."""
