"""The history as figures, findings and advice for people."""
