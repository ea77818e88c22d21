"""Fuzzers of every reader of outside input: `make audit`."""
