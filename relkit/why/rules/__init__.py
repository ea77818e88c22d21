"""What error texts mean, as tables: causes, patterns of lines, and names of exceptions."""
