"""The conformance suite of each port; every implementation of a port runs all of it."""
