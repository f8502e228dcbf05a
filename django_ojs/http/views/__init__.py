"""One viewset per resource: from a request to one call of a service, and back."""
