"""Anthropic's message batches, as its official client speaks them."""
