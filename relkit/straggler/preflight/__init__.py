"""Before the job: which device, host or link would make it slow."""
