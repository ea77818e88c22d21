"""Files that somebody named, and files that are private."""
