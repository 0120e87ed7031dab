"""What Backstay knows of LLM services: request lines, prices, the wire, and a handler for each lane."""
