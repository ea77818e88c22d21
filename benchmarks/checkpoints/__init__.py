"""Flash checkpoints: their time, and kills in the middle."""
