"""Remote work: a request goes out over HTTP or messages, and a callback brings the result."""
