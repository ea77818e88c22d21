"""Steps from traces and tables of other tools."""
