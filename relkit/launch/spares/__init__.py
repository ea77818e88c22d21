"""Spare nodes: who is in the job, who waits, and who takes the place of a node that is gone."""
