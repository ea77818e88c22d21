"""Flash checkpoints: slots, saves and loads, and jobs that are killed and resume."""
