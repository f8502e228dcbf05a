"""Optional capabilities: each a slice of its own that plugs into the doors of the core."""
