"""torch's elastic agent, with services beside its workers."""
