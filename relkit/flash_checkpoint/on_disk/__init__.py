"""Checkpoints on disk: how they are written, named by trackers, and found again."""
