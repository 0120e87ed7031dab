"""Messages over a broker: hints about work that is ready, requests and callbacks. The database stays the truth."""
