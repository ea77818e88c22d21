"""What a job's time went into: a journal a launcher, and what can be said from it afterwards."""
