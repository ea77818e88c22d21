"""Step times from files of other tools: traces of a profiler, tables of times."""
