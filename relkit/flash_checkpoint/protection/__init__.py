"""`relkit.protect`: a training loop kept in memory at every step, with two lines."""
