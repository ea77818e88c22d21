"""Capturing and merging stacks."""
