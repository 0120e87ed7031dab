"""What does the work of an item: a user's function or class, wrapped so that the engine sees two shapes only."""
