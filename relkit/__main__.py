"""`python -m relkit` is the same as the `relkit` command."""

from relkit.cli import main

if __name__ == "__main__":
    main()
