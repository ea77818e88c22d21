"""The network between the nodes of a hang's suspects: which links are measured, what they show."""
