"""The launcher's part in flash checkpoints: it owns the slots, which therefore outlive workers."""
