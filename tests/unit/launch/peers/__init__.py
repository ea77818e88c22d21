"""Where the launchers of a job meet."""
