"""Megatron's flags, names and files."""
