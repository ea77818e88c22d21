"""Breaks relkit on purpose, one line at a time, and sees whether a test notices: `make mutants`."""
