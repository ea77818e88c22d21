"""Samples from token files, in Megatron's order."""
