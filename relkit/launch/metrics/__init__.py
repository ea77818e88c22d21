"""Metrics of a job, beside it: what the launcher knows, as a file, over HTTP, or pushed."""
