"""Slices of segments become objects: how many at once, how fast, and how often again."""
