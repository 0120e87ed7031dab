"""Upkeep for the whole installation: alarms, archives of dead letters, and the lag of the relays."""
