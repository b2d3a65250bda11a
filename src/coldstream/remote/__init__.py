"""What reading and writing share of the remote tier: item and root, groups, listings, trailers."""
