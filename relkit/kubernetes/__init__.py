"""Jobs and node checks as objects of Kubernetes, whose engines run them."""
