"""What all of the launcher shares: settings, ranks, the job folder, notes between nodes."""
