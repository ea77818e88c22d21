"""Checks of networks, simulated and measured."""
