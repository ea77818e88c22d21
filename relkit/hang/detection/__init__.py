"""Whether the job makes progress, from the recorders of all its ranks; pure."""
