"""Pages of a hang: who waits for whom, and when."""
