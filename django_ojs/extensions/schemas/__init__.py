"""The schema registry: JSON Schemas of job arguments, by type and version (OJS schema registry)."""
