"""The page of a job with slow ranks."""
