"""The fields that a rule declares, in each way to write them down."""
