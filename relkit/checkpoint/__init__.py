"""Checkpoint folders on disk: complete or absent, with a manifest; no trainer in here."""
