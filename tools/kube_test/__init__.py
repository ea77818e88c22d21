"""A real API server, kubelet and containerd on this machine, and relkit's objects in them."""
