"""The subcommands: one file each, file name == command name; the table is in relkit.cli."""
