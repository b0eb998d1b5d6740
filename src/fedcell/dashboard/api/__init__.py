"""The HTTP API, a module a subject."""
