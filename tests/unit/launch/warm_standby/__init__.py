"""Warm standbys: what is imported in advance, the hand-over, and when there is none."""
