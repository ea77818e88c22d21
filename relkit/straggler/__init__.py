"""Who makes a job slow: step boundaries, arrivals, scores, verdicts; pure, no own clock."""
