"""Stacks of all ranks as one picture to zoom into."""
