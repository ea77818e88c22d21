"""`make test`: ruff, C format and mypy, and the tests in workers side by side."""
