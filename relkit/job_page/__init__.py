"""All that is kept of one job, for its page: reports, account, history."""
