"""Try-to-persist: what it costs, and faults without end."""
