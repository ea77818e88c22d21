"""`make test`: ruff, mypy, then all tests in three lanes, then those that need a quiet machine."""
