"""Jobs that the checks run."""
