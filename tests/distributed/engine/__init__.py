"""A backend of Django's, for ``ENGINE``."""
