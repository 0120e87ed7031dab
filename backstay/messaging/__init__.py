"""What leaves the outbox: hints, requests and callbacks over a broker, and webhooks. The database stays the truth."""
