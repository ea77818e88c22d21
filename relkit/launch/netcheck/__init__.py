"""The network check of a job, before its workers start."""
