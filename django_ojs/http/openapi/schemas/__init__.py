"""The components of the OpenAPI document, by subject."""
