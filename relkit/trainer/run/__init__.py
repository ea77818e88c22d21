"""The training loop around the core."""
