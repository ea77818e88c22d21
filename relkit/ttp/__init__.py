"""Try to persist: after a fault, survivors write the last committed step from replicas."""
