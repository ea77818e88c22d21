"""Options that a site, a user or a job keeps in a file."""
