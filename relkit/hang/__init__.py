"""Hang detection and attribution: pure functions on the ranks' recorders and stacks."""
