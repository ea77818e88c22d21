"""Which rank, host or link is slow: pure, without a clock of its own."""
