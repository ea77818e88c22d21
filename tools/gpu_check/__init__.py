"""What needs a real NVIDIA GPU, checked in one command: make gpu-check."""
