"""relkit: which node, link or rank of a distributed training job is broken, and how we know."""

__version__ = "0.1.0"
