"""The databases that the store runs on: SQLite, PostgreSQL, or a connection of the user's; and their schema."""
