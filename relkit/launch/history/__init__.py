"""Keeps the history of jobs while one runs, and says which of its nodes were named before."""
