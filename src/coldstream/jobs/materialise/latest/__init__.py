"""Tables of the last message of each key."""
