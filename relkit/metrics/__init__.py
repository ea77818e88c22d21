"""Metrics of a job: a table of them, their samples from what a launcher knows, and their text."""
