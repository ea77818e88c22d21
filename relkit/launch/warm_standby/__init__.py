"""Processes that have imported what a worker imports, and wait to become one."""
