"""One stream, as one value that `step` moves on, and who does what it decides."""
