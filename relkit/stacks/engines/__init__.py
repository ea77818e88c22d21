"""Stack engines: each reads one process's stacks in its own way, behind one Protocol."""
