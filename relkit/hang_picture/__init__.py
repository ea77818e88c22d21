"""What one page shows of a hang beside its verdict, as plain data (pure but for `folder`)."""
