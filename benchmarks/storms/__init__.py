"""Storms of faults over a whole fleet."""
