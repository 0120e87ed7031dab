"""The HTTP client of the lanes: one request, one reply, sent once."""
