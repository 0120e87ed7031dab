"""The service: the same store over HTTP, for people, programs and OpenAI clients."""
