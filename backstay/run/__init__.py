"""A run: a file of requests in, a file of results out, resumed after anything."""
