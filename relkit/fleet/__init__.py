"""One way to reach many nodes: an agent on each, JSON lines in, tagged JSON lines out."""
