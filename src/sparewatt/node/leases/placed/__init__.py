"""Leases that are placed with this node: from the gateway's task to a container, and back to a free machine."""
