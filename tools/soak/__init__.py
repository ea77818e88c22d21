"""A long job in which everything comes and goes, and nothing may grow: `python -m tools.soak`."""
