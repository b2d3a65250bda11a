"""The test kit: generators, conformance suites, invariants. Shared with `coldstream verify`."""
