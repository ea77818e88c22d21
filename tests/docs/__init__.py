"""The documentation is held against the code."""
