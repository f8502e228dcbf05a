"""All raw SQL and vendor differences: how transitions are written, and how jobs are read."""
