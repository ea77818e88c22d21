"""What has happened to all jobs of this user on this host, kept over restarts of the host."""
