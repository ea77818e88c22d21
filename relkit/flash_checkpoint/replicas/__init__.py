"""Copies of slots that launchers keep for each other's hosts."""

# Tells workers how many replicas their launchers make.
COUNT_VARIABLE = "RELKIT_FLASH_REPLICA_COUNT"
