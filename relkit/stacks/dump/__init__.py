"""Capturing the stacks of several ranks of this host, and writing them down."""
