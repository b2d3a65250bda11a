"""Whether a fragment is sound, and what is wrong with it: pure code, findings as values.

Agent, readers, `verify`, `repair` and scrub ask here, so they cannot disagree. `findings`,
`trailer` and `chunk` need the standard library only, because no Lambda has numpy. The other modules
look at many chunks at once.
"""
