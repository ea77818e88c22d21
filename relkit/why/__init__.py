"""From whatever a job left behind to one answer: what was the cause, and on which rank."""
