"""A release: built, checked, and told what is left to do; nothing leaves this machine."""
