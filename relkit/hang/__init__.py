"""Hang detection and attribution: pure functions on what the ranks' recorders and stacks say."""
