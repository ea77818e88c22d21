"""What traces cost."""
