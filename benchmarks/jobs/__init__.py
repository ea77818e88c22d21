"""Training jobs that benchmarks start, run as scripts."""
