"""The commands: one file each, file name == command name; the table is in relkit.cli."""
