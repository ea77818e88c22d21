"""How the jobs of this host do at this moment, from what their launchers publish."""
