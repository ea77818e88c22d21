"""After a hang: the launchers of the suspects' nodes measure the links between them."""
