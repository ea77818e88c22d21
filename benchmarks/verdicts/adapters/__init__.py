"""How relkit and others are asked about an incident: one file a tool."""
