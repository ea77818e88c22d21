"""Programs that no trainer is like: under `relkit launch` they do as under torchrun."""
