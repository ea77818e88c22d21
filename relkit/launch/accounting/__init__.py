"""The launcher's part of the accounts: it notes what happens to its workers, and when."""
