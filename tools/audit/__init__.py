"""Fuzzers of all that relkit reads from elsewhere: `make audit`."""
