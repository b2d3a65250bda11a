"""The workflows, each with its definition beside it; those that look at all streams share one."""
