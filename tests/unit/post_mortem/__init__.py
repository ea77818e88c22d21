"""What a host shows of a rank that died."""
