"""A broker's files: which are there, what they hold, and which stay readable when they go."""
