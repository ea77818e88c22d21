"""The verdict and the measurements as findings."""
