"""What a host shows of a rank that died: memory limits, kernel log, last output, core file."""
