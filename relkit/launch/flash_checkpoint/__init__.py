"""The launcher's part in flash checkpoints: the slots are its own, and outlive workers."""
