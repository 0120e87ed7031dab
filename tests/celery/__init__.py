"""Celery's workers execute items: real worker processes on a real broker."""
