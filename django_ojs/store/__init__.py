"""The only SQL: how decisions are written, and how rows are read."""
