"""`make test`: ruff, mypy, then all tests in two lanes, then those that need a quiet machine."""
