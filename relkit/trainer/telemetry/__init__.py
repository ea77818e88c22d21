"""What a run tells: log files and the event stream."""
