"""The schema's history: one Alembic line for both databases."""
