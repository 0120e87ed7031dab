"""Anthropic's message batches at the service."""
