"""Gathers the evidence of a hang from the nodes on which it lies."""
