"""Flash checkpoints: slots, what goes into them, and jobs that are killed and go on."""
