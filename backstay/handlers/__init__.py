"""Handlers do the work of items: a user's function or class, wrapped so that the engine sees only two interfaces."""
