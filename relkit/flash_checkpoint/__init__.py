"""Checkpoints in shared memory: every step safe, disk in the background, for any training loop."""
