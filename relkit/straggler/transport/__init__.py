"""How steps, settings and the history travel: between nodes, and to whoever watches."""
