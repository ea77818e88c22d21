"""Starts, restarts and lost nodes, and the links between launchers."""
