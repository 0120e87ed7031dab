"""The commands. Each module loads what it needs when it runs, so that help and version come at once."""
