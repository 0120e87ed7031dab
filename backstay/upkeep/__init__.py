"""Upkeep for the whole installation: alarms, archives of dead letters, old jobs, and the lag of the relays."""
