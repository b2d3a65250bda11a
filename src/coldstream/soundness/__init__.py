"""Whether a fragment is sound, and what is wrong with it: pure code, findings as values.

Agent, readers, `verify`, `repair`, scrub and the rules for claims ask here, so they cannot disagree.
`findings`, `trailer` and `chunk` need the standard library only, for no Lambda has numpy; the others
look at many chunks at once.
"""
