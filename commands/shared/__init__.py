"""What several commands share: kinds of options, fleets, incidents, progress."""
