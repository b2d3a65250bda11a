"""`make demo LIVE=1`: a living broker, its agent, and what is confirmed while both are killed."""
