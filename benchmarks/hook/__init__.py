"""What the hook costs a call and a job."""
