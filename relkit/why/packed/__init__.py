"""What is packed or in an archive, read in memory."""
