"""Takes nodes out of a cluster, and puts them back: rules (pure), and engines that do it."""
