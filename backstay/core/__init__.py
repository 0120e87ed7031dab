"""The pure heart: states, decisions and arithmetic, without I/O, clock, randomness or async."""
