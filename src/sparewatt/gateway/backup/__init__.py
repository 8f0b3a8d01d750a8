"""Backup and restore of a whole network: the database at one moment with the journals that belong to it."""
