"""Sockets between relkit processes: the interface to a peer, and who is at the other end."""
