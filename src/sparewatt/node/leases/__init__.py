"""The node's half of leases: what it signs as the machine behind a provider."""
