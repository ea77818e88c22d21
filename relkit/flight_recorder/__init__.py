"""PyTorch's flight recorder: its dumps, of any job, judged as a hang that relkit watched itself."""
