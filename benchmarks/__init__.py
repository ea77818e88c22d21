"""Measurements: a peer and relkit in turn in one run; docs/benchmarks.md has what came out."""
