"""The network check: schedule pairs, probe them, and convict nodes, links or groups."""
