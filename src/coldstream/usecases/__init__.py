"""The order of things: load, plan, perform, commit. One module a verb; talks through ports only."""
