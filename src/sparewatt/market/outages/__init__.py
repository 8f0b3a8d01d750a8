"""Leases whose provider has gone silent: when a validator signs that it is down, and when a quorum has. Pure."""
