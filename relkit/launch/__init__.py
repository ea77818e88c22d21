"""The elastic agent, the monitor that lives in it, and the launchers built on them."""
