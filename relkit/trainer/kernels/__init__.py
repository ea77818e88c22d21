"""Fast paths for linear layers and optimizer updates."""
