"""The reference trainer and other real ones; the making of its data."""
