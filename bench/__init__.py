"""Side-by-side measurements against peers; each prints the figures and then its ratios."""
