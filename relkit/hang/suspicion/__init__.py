"""Who seems to hold the job up, seconds after it stalls: a guess that nobody acts upon; pure."""
