"""Saving and loading a run, periodically and after a fault."""
