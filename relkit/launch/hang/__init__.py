"""Hang detection in the launcher: watch the ranks, share what was seen, handle an incident."""
