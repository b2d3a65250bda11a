"""The job scrub: every byte of the remote tier against everything that is said about it."""
