"""States of which each rank has a part, and torch's distributed checkpoints on disk (DCP)."""
