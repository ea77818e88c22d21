"""Networks: the page of a check, and the order of nodes."""
