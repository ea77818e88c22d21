"""Checkpoints in shared memory as often as every step, and to disk in the background."""
