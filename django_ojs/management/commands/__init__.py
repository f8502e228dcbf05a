"""Management commands: arguments in, a service or the worker called, words out."""
