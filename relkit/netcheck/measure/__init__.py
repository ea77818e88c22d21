"""Measures pairs of nodes: rounds, agents, probes, and what they saw."""
