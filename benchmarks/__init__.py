"""Measurements: commands that make a database of their own, load it and print what things take."""
