"""Where the launchers of a job meet, from what a scheduler has told each of them."""
