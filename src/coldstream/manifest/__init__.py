"""The manifest of a stream as values: entries, root, ledger, catalog item. No I/O."""
