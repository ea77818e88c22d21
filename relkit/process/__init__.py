"""Processes: started with a deadline, waited for, looked at, ended."""
