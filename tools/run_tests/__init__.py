"""`make test`: ruff, mypy, then all tests in four lanes, then those that need a quiet machine."""
