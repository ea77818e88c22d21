"""Has the ranks of a job mark calls of named functions."""
