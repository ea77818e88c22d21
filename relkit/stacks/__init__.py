"""Stacks of all ranks: capture, dump file, symbolise, merge."""
