"""The pure heart: states, decisions and arithmetic, with no I/O, no clock, no chance and no async."""
