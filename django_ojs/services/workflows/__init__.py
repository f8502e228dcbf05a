"""Workflows: creating them, advancing them as their members end, and what people do to them."""
