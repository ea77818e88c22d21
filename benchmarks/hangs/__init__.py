"""Hangs: what is found, and how soon."""
