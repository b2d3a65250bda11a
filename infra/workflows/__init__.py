"""The workflows: one state machine a file, its definition beside it."""
