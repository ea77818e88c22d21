"""Stragglers: what watching costs, and what is found of recorded and simulated jobs."""
