"""A job as one page."""
