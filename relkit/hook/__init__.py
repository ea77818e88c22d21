"""The Python side of the native hook: find it, preload it, read what it records."""
