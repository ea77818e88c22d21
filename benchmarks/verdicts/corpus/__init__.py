"""Incidents with known culprits, made by injection into real jobs."""
