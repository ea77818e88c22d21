"""The network check: pair nodes, measure the pairs, and diagnose nodes, links and uplinks."""
