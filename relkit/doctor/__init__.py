"""What works on this host: one probe a file, behind relkit doctor."""
