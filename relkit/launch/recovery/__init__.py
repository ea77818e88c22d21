"""Fault recovery in the launcher: the controller of try-to-persist and its place on disk."""
