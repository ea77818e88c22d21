"""`make fresh-check`: the README's two commands on a Debian machine that has nothing yet."""
