"""Straggler detection in the launcher: steps travel to node 0, verdicts come back."""
