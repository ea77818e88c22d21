"""Links between the launchers of a job: who leads, and notes that no store has to carry."""
