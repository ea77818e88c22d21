"""The probes: what two nodes do to each other (or a node to itself) to be measured."""
