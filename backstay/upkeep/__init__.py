"""What is done beside the work, for all: alarms, archives of dead letters, and how far behind the relays are."""
