"""LLM services: request lines, prices, the HTTP client, and a handler for each lane."""
