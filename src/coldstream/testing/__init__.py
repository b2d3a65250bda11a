"""The test kit: generators, conformance suites, named invariants. Shared with `coldstream verify`."""
