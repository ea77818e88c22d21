"""From measured edges to a verdict: pure."""
