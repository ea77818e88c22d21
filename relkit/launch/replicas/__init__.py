"""Launchers on different hosts keep copies of each other's slots."""
