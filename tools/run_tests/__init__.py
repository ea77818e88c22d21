"""`make test`: ruff, mypy, then tests in four lanes, then those that need a quiet machine."""
