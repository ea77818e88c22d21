"""Breaks relkit on purpose, one place at a time; a test has to notice: `make mutants`."""
