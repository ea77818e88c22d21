"""Text that came from elsewhere: parsed, counted, made printable."""
