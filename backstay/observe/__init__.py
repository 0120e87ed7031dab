"""Listeners to the engine's events: logs, metrics and traces."""
