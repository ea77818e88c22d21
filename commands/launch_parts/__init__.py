"""The parts of `relkit launch`: its options by subject, and what it keeps of how a run ended."""
