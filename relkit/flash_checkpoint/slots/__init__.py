"""A rank's slots in shared memory: format, files, and the folder that the launcher owns."""
