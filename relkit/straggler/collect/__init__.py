"""From recorder files to finished steps of this node's ranks."""
