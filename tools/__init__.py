"""Programs for those who work on relkit."""
