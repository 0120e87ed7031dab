"""Listeners to the engine's events: logs and metrics."""
