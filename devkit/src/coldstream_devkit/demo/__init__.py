"""`make demo`: deploy to the embedded AWS, tier real segment files, read every byte back."""
