"""What runs inside each system's own environment: one process per measurement."""
