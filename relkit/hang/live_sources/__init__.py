"""Several sources that speak of one rank while the job runs; pure."""
