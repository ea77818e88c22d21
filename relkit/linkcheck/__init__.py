"""The check of switchbox-to-GPU links inside a host."""
